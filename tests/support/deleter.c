/* A module that deletes each key on which a call was refused, as soon as it is told; and the keys
 * that its arguments name, as soon as entries of any list or sorted set are removed by a range, or a
 * key has expired; with the argument `new`, also as soon as a key is made. Not the key at hand: there,
 * the server itself goes on with what it has told of. */

#include <stddef.h>
#include <string.h>

typedef struct Ctx Ctx;
typedef struct Key Key;
typedef struct String String;

enum { OK = 0, WRITE = 2 };
enum {
    NOTIFY_LIST = 1 << 4,
    NOTIFY_ZSET = 1 << 7,
    NOTIFY_EXPIRED = 1 << 8,
    NOTIFY_MODULE = 1 << 13,
    NOTIFY_NEW = 1 << 14
};

static Key *(*OpenKey)(Ctx *, String *, int);
static int (*DeleteKey)(Key *);
static void (*CloseKey)(Key *);
static int (*StringCompare)(String *, String *);

enum { MOST = 8 };
static String *victims[MOST];
static int count;

static void delete(Ctx *ctx, String *name) {
    Key *key = OpenKey(ctx, name, WRITE);
    if (key != NULL) {
        DeleteKey(key);
        CloseKey(key);
    }
}

static int told(Ctx *ctx, int type, const char *event, String *name) {
    if (type == NOTIFY_MODULE) {
        delete(ctx, name);
    } else if (type == NOTIFY_EXPIRED || type == NOTIFY_NEW || strcmp(event, "ltrim") == 0 ||
               strncmp(event, "zremrange", 9) == 0) {
        for (int i = 0; i < count; i++)
            if (StringCompare(victims[i], name) != 0) delete(ctx, victims[i]);
    }
    return OK;
}

int RedisModule_OnLoad(Ctx *ctx, String **argv, int argc);

int RedisModule_OnLoad(Ctx *ctx, String **argv, int argc) {
    /* The first field of a context is the function that hands out all others by name. */
    int (*get)(const char *, void *) = *(int (**)(const char *, void *))ctx;
    void (*SetModuleAttribs)(Ctx *, const char *, int, int);
    int (*Subscribe)(Ctx *, int, int (*)(Ctx *, int, const char *, String *));
    String *(*CreateStringFromString)(Ctx *, const String *);
    const char *(*StringPtrLen)(const String *, size_t *);
    int types = NOTIFY_LIST | NOTIFY_ZSET | NOTIFY_EXPIRED | NOTIFY_MODULE;
    get("RedisModule_SetModuleAttribs", &SetModuleAttribs);
    get("RedisModule_SubscribeToKeyspaceEvents", &Subscribe);
    get("RedisModule_CreateStringFromString", &CreateStringFromString);
    get("RedisModule_StringCompare", &StringCompare);
    get("RedisModule_StringPtrLen", &StringPtrLen);
    get("RedisModule_OpenKey", &OpenKey);
    get("RedisModule_DeleteKey", &DeleteKey);
    get("RedisModule_CloseKey", &CloseKey);
    SetModuleAttribs(ctx, "deleter", 1, 1);
    /* Kept for as long as the server runs. */
    for (int i = 0; i < argc && count < MOST; i++) {
        if (strcmp(StringPtrLen(argv[i], NULL), "new") == 0)
            types |= NOTIFY_NEW;
        else
            victims[count++] = CreateStringFromString(NULL, argv[i]);
    }
    return Subscribe(ctx, types, told);
}
