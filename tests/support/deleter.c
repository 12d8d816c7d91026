/* A module that deletes each key on which a call was refused, as soon as it is told. */

#include <stddef.h>

typedef struct Ctx Ctx;
typedef struct Key Key;
typedef struct String String;

enum { OK = 0, WRITE = 2, NOTIFY_MODULE = 1 << 13 };

static Key *(*OpenKey)(Ctx *, String *, int);
static int (*DeleteKey)(Key *);
static void (*CloseKey)(Key *);

static int refused(Ctx *ctx, int type, const char *event, String *name) {
    (void)type;
    (void)event;
    Key *key = OpenKey(ctx, name, WRITE);
    if (key != NULL) {
        DeleteKey(key);
        CloseKey(key);
    }
    return OK;
}

int RedisModule_OnLoad(Ctx *ctx, String **argv, int argc);

int RedisModule_OnLoad(Ctx *ctx, String **argv, int argc) {
    (void)argv;
    (void)argc;
    /* The first field of a context is the function that hands out all others by name. */
    int (*get)(const char *, void *) = *(int (**)(const char *, void *))ctx;
    void (*SetModuleAttribs)(Ctx *, const char *, int, int);
    int (*Subscribe)(Ctx *, int, int (*)(Ctx *, int, const char *, String *));
    get("RedisModule_SetModuleAttribs", &SetModuleAttribs);
    get("RedisModule_SubscribeToKeyspaceEvents", &Subscribe);
    get("RedisModule_OpenKey", &OpenKey);
    get("RedisModule_DeleteKey", &DeleteKey);
    get("RedisModule_CloseKey", &CloseKey);
    SetModuleAttribs(ctx, "deleter", 1, 1);
    return Subscribe(ctx, NOTIFY_MODULE, refused);
}
