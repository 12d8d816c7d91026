//! What the server tells of the commands: documentation, arguments, keys, rights.

use redis::{Connection, Value};
use tempfile::TempDir;

use support::{Options, Server, ask, ask_all, error, info_text, module, send};

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).expect("text"),
        Value::SimpleString(text) => text.clone(),
        Value::Int(number) => number.to_string(),
        other => panic!("no text but {other:?}"),
    }
}

/// The fields of a map of RESP3.
fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    let Value::Map(pairs) = map else {
        panic!("no map but {map:?}");
    };
    pairs
        .iter()
        .find_map(|(key, value)| (text(key) == name).then_some(value))
}

fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        other => panic!("no list but {other:?}"),
    }
}

/// One argument as a line: `name:type`, its token in front, its parts in parentheses, `?` behind it
/// if it may be left out, `+` if it may be repeated.
fn argument(arg: &Value) -> String {
    let get = |name| field(arg, name).map(text);
    let mut line: Vec<String> = get("token").into_iter().collect();
    let [name, kind] = ["name", "type"].map(|name| get(name).expect("a name and a type"));
    line.push(format!("{name}:{kind}"));
    let mut line = line.join(" ");
    if let Some(parts) = field(arg, "arguments") {
        let parts: Vec<String> = items(parts).iter().map(argument).collect();
        line = format!("{line}({})", parts.join(" "));
    }
    for (flag, sign) in [("optional", '?'), ("multiple", '+')] {
        let has = |flags: &Value| items(flags).iter().any(|told| text(told) == flag);
        if field(arg, "flags").is_some_and(has) {
            line.push(sign);
        }
    }
    line
}

#[test]
fn command_docs_tell_every_argument() {
    let server = Options::new().start();
    let mut connection = server.connect_resp3();
    let exact = "EXACT exact:pure-token?";
    let take = "take:block(COST cost:integer FORCE force:pure-token?)";
    let refund = "REFUND refund:integer";
    let charge = format!("charge:oneof({take} UPTO upto:integer {refund})?");
    let settle = format!("charge:oneof({take} {refund})?");
    let hold = "hold:oneof(RENEW renew:pure-token RELEASE release:pure-token)?";
    let look = "charge:oneof(COST cost:integer UPTO upto:integer)?";
    let window = "limit:integer window_ms:integer";
    let bucket = "capacity:integer refill:integer period_ms:integer";
    let lease = "limit:integer ttl_ms:integer id:string";
    let [fixed, token, slide, leases] = ["fixed", "token", "slide", "lease"]
        .map(|name| format!("{name}:block({} {name}:pure-token", name.to_uppercase()));
    for (command, since, complexity, arguments) in [
        (
            "rl.fixed",
            "0.1.0",
            "O(1)",
            format!("key:key {window} {charge}"),
        ),
        (
            "rl.token",
            "0.1.0",
            "O(1)",
            format!("key:key {bucket} {charge}"),
        ),
        (
            "rl.slide",
            "0.1.0",
            "O(1)",
            format!("key:key {window} {charge} {exact}"),
        ),
        (
            "rl.lease",
            "0.2.0",
            "O(log(N)+M)",
            format!("key:key {lease} {hold}"),
        ),
        (
            "rl.all",
            "0.2.0",
            "O(N)",
            format!(
                "numkeys:integer key:key+ policy:oneof({fixed} {window} {settle}) \
                 {token} {bucket} {settle}) {slide} {window} {settle} {exact}) \
                 {leases} {lease} {hold}))+"
            ),
        ),
        (
            "rl.peek",
            "0.1.0",
            "O(1)",
            format!(
                "key:key algorithm:oneof({fixed} {window}) {token} {bucket}) \
                 {slide} {window} {exact}) {leases} {lease})) {look}"
            ),
        ),
    ] {
        let docs: Value = send(&mut connection, &["COMMAND", "DOCS", command]);
        let docs = field(&docs, command).expect("documentation");
        let get = |name| field(docs, name).map(text).unwrap_or_default();
        assert_eq!(get("since"), since, "{command}");
        assert_eq!(get("module"), "rl");
        let integers = if command == "rl.all" {
            "Replies with allowed, retry_after_ms, and the five integers of each limit."
        } else {
            "Replies with allowed, limit, remaining, retry_after_ms and reset_after_ms."
        };
        assert!(get("summary").ends_with(integers), "{command}");
        assert!(get("complexity").starts_with(complexity), "{command}");
        let told = items(field(docs, "arguments").expect("arguments"));
        let told: Vec<String> = told.iter().map(argument).collect();
        assert_eq!(told.join(" "), arguments, "{command}");
    }
}

#[test]
fn keys_are_told_with_what_happens_to_them() {
    let server = Server::start();
    let mut connection = server.connect();
    for (call, expected) in [
        ("RL.FIXED k 1 1", &["RW", "access", "update"][..]),
        ("RL.TOKEN k 1 1 1", &["RW", "access", "update"]),
        ("RL.SLIDE k 1 1 EXACT", &["RW", "access", "update"]),
        ("RL.TOKEN k 1 1 1 REFUND 1", &["RW", "access", "update"]),
        ("RL.LEASE k 1 1 id RELEASE", &["RW", "access", "update"]),
        ("RL.ALL 1 k FIXED 1 1", &["RW", "access", "update"]),
        ("RL.PEEK k FIXED 1 1", &["RO", "access"]),
        ("RL.PEEK k LEASE 1 1 id", &["RO", "access"]),
    ] {
        let mut words = vec!["COMMAND", "GETKEYSANDFLAGS"];
        words.extend(call.split(' '));
        let keys: Vec<(String, Vec<String>)> = send(&mut connection, &words);
        let expected = expected.iter().map(|flag| (*flag).to_owned()).collect();
        assert_eq!(keys, [("k".to_owned(), expected)], "{call}");
    }
}

#[test]
fn flags_tell_how_a_command_behaves() {
    let server = Server::start();
    let mut connection = server.connect();
    for (command, arity, flags) in [
        ("rl.fixed", -4, &["write", "module", "fast"][..]),
        ("rl.token", -5, &["write", "module", "fast"]),
        ("rl.slide", -4, &["write", "module"]),
        ("rl.lease", -5, &["write", "module"]),
        ("rl.all", -4, &["write", "module", "movablekeys"]),
        ("rl.peek", -5, &["readonly", "module"]),
    ] {
        let told: Vec<Vec<Value>> = send(&mut connection, &["COMMAND", "INFO", command]);
        assert_eq!(told[0][1], Value::Int(arity), "{command}");
        let told: Vec<String> = items(&told[0][2]).iter().map(text).collect();
        assert_eq!(told, flags, "{command}");
    }
}

/// What the server lets a module do with ACL categories.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Categories {
    /// Redis 7.0.
    None,
    /// Name the server's own: Redis 7.2.
    Named,
    /// Make new ones: Redis 7.4, Valkey 8, Redict.
    Made,
}

fn categories(connection: &mut Connection) -> Categories {
    let text = info_text(connection, "server");
    let of = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    };
    // Both say that they are Redis 7.2.4 too.
    if of("valkey_version").is_some() || of("redict_version").is_some() {
        return Categories::Made;
    }
    let version = of("redis_version").expect("a version");
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    match (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) {
        (7, 0 | 1) => Categories::None,
        (7, 2 | 3) => Categories::Named,
        _ => Categories::Made,
    }
}

/// The commands that a user may call who has nothing but one category. (`ACL CAT` leaves out the
/// commands of modules on some servers.)
fn granted_by(connection: &mut Connection, category: &str) -> Vec<&'static str> {
    let rule = format!("+@{category}");
    let rules = ["ACL", "SETUSER", "probe", "reset", "allkeys", &rule];
    send::<()>(connection, &rules);
    let mut granted = Vec::new();
    for call in [
        "rl.all 1 k FIXED 1 1",
        "rl.fixed k 1 1",
        "rl.lease k 1 1 id",
        "rl.peek k FIXED 1 1",
        "rl.slide k 1 1",
        "rl.token k 1 1 1",
    ] {
        let mut words = vec!["ACL", "DRYRUN", "probe"];
        words.extend(call.split(' '));
        if send::<String>(connection, &words) == "OK" {
            granted.push(words[3]);
        }
    }
    granted
}

#[test]
fn one_category_is_all_that_a_gateway_needs() {
    let server = Options::new().arg("enable-module-command", "yes").start();
    let mut connection = server.connect();
    if categories(&mut connection) < Categories::Made {
        let unknown = error(&mut connection, "ACL CAT ratelimit");
        assert!(unknown.starts_with("ERR Unknown category"), "{unknown}");
        return;
    }
    let all = [
        "rl.all", "rl.fixed", "rl.lease", "rl.peek", "rl.slide", "rl.token",
    ];
    assert_eq!(granted_by(&mut connection, "ratelimit"), all);
    // The category outlives the module, and takes the commands of the next one.
    let path = module().to_str().expect("a path");
    send::<()>(&mut connection, &["MODULE", "UNLOAD", "rl"]);
    send::<()>(&mut connection, &["MODULE", "LOAD", path]);
    assert_eq!(granted_by(&mut connection, "ratelimit"), all);
    let mut gateway = server.connect_as("+@ratelimit ~rl:*");
    for call in [
        "RL.FIXED rl:f 5 60000",
        "RL.TOKEN rl:t 5 1 60000",
        "RL.SLIDE rl:s 5 60000",
        "RL.SLIDE rl:e 5 60000 EXACT",
        "RL.LEASE rl:l 5 60000 me",
        "RL.PEEK rl:p FIXED 5 60000",
    ] {
        assert_eq!(ask(&mut gateway, call)[0], 1, "{call}");
    }
    let both = "RL.ALL 2 rl:f rl:l FIXED 5 60000 LEASE 5 60000 me";
    assert_eq!(ask_all(&mut gateway, both).0, 1);
    for line in [
        "RL.FIXED other 5 60000",
        "RL.ALL 2 rl:f other FIXED 5 60000 FIXED 5 60000",
        "GET rl:f",
        "SET rl:f 1",
        "INFO",
    ] {
        let refused = error(&mut gateway, line);
        assert!(refused.starts_with("NOPERM"), "{line}: {refused}");
    }
    // Who may only read the keys may only look.
    let mut dashboard = server.connect_as("+@ratelimit %R~rl:*");
    let look = ask(&mut dashboard, "RL.PEEK rl:f FIXED 5 60000");
    assert_eq!(look[..3], [1, 5, 3]);
    for line in [
        "RL.FIXED rl:f 5 60000",
        "RL.SLIDE rl:e 5 60000 EXACT",
        "RL.LEASE rl:l 5 60000 me",
        both,
    ] {
        let refused = error(&mut dashboard, line);
        assert!(refused.starts_with("NOPERM"), "{line}: {refused}");
    }
}

/// A server that does not know what a stored rule names does not start.
#[test]
fn a_stored_rule_needs_the_module_when_the_server_starts() {
    let made = categories(&mut Server::start().connect()) == Categories::Made;
    for (rule, module, starts) in [
        ("+@ratelimit", true, made),
        ("+rl.fixed", true, true),
        ("+@ratelimit", false, false),
        ("+rl.fixed", false, false),
    ] {
        let dir = TempDir::new().expect("a temporary folder");
        let users =
            format!("user default on nopass ~* &* +@all\nuser gateway on nopass ~* {rule}\n");
        std::fs::write(dir.path().join("users.acl"), users).expect("a file");
        let mut options = Options::new().arg("aclfile", "users.acl");
        if !module {
            options = options.without_module();
        }
        if starts {
            options.start_in(dir);
            continue;
        }
        let mut server = options.spawn_in(dir);
        assert_eq!(server.wait().code(), Some(1), "{rule}");
        let log = server.log();
        assert!(
            log.contains("Unknown command or category name in ACL"),
            "{log}"
        );
    }
}

#[test]
fn the_servers_own_categories_hold_the_commands_too() {
    let server = Options::new().start();
    let mut connection = server.connect();
    let expected: [(&str, &[&str]); 5] = if categories(&mut connection) < Categories::Named {
        ["write", "read", "fast", "slow", "dangerous"].map(|category| (category, &[][..]))
    } else {
        [
            (
                "write",
                &["rl.all", "rl.fixed", "rl.lease", "rl.slide", "rl.token"],
            ),
            ("read", &["rl.peek"]),
            ("fast", &["rl.fixed", "rl.token"]),
            ("slow", &["rl.all", "rl.lease", "rl.peek", "rl.slide"]),
            ("dangerous", &[]),
        ]
    };
    for (category, expected) in expected {
        let granted = granted_by(&mut connection, category);
        assert_eq!(granted, expected, "@{category}");
    }
}
