//! `docs/runbook.md`: its transcripts, and its shell commands with what they print.
//!
//! A block of `sh` that is followed by one of `text` prints that, and any other prints something. It
//! runs on what the transcript before it has left. Each section has a server of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use redis::Connection;
use tempfile::TempDir;

use crate::cluster::Cluster;
use crate::readme::Stage;
use support::{
    DEADLINE, Options, SECOND, Server, T0, ask, end_with_this_thread, error, free_port, kill,
    module, send, server_binary, try_send, wait_until,
};

const PAGE: &str = include_str!("../../docs/runbook.md");
const TOP: &str = env!("CARGO_MANIFEST_DIR");

/// Blocks that need more than one server and no company, each of which has a test below.
const APART: [&str; 6] = [
    "loaded-on-a-cluster",
    "most-refused",
    "who-calls",
    "time",
    "figures-of-a-cluster",
    "reset-on-a-cluster",
];

/// What stands between a line of three backquotes and a word, and the next three.
struct Block<'a> {
    kind: &'a str,
    name: &'a str,
    text: &'a str,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let fenced = page.split("```").skip(1).step_by(2);
    let blocks = fenced.map(|block| {
        let (head, text) = block.split_once('\n').expect("a block of lines");
        let (kind, name) = head.split_once(' ').unwrap_or((head, ""));
        Block { kind, name, text }
    });
    blocks.collect()
}

/// A block of the page by its name, and what it prints by the page.
fn block(name: &str) -> (&'static str, &'static str) {
    let blocks = blocks(PAGE);
    let found = blocks.iter().position(|block| block.name == name);
    let found = found.unwrap_or_else(|| panic!("the page has no block {name}"));
    let prints = blocks.get(found + 1).filter(|next| next.kind == "text");
    (blocks[found].text, prints.map_or("", |next| next.text))
}

/// A shell in a folder of its own, in which `redis-cli` asks a port unless told otherwise.
struct Shell {
    dir: TempDir,
}

impl Shell {
    fn on(port: u16) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        for folder in ["examples", "tests"] {
            std::os::unix::fs::symlink(Path::new(TOP).join(folder), dir.path().join(folder))
                .expect("a link");
        }
        let shell = Self { dir };
        shell.tool(
            "redis-cli",
            &format!("{} -p {port}", on_path("redis-cli").display()),
        );
        shell.tool(
            "redis-server",
            &on_path(server_binary()).display().to_string(),
        );
        shell
    }

    fn tool(&self, name: &str, runs: &str) {
        let path = self.dir.path().join("bin");
        fs::create_dir_all(&path).expect("a folder");
        let path = path.join(name);
        fs::write(&path, format!("#!/bin/sh\nexec {runs} \"$@\"\n")).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        let path = std::env::var("PATH").expect("a path");
        command
            .args(["-euo", "pipefail", "-c", script])
            .current_dir(self.dir.path())
            .env("PATH", format!("{}/bin:{path}", self.dir.path().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        end_with_this_thread(&mut command);
        command
    }

    /// What a script prints. What it has started and not ended is ended with it.
    fn run(&self, script: &str) -> String {
        let mut command = self.command("exec timeout 60 bash -euo pipefail -c \"$SCRIPT\"");
        let child = command
            .env("SCRIPT", script)
            .process_group(0)
            .spawn()
            .expect("bash runs");
        let group = libc::pid_t::try_from(child.id()).expect("an id");
        let output = child.wait_with_output().expect("a child");
        // SAFETY: a system call that reads no memory.
        unsafe { libc::kill(-group, libc::SIGKILL) };
        assert!(output.status.success(), "{script}{}", said(&output));
        text(&output.stdout)
    }

    /// Starts `most-refused` and waits until it listens on each of these servers.
    fn most_refused(&self, arguments: &str, servers: &[Server]) -> Child {
        let script = format!("exec examples/monitoring/most-refused {arguments}");
        let child = self.command(&script).spawn().expect("bash runs");
        for server in servers {
            let mut connection = server.connect();
            wait_until("a listener", || {
                send::<u32>(&mut connection, &["PUBSUB", "NUMPAT"]) == 1
            });
        }
        child
    }
}

fn on_path(program: impl AsRef<Path>) -> PathBuf {
    let program = program.as_ref();
    let path = std::env::var_os("PATH").expect("a path");
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|found| found.is_file())
        .unwrap_or_else(|| panic!("{} is installed", program.display()))
}

/// Lines of INFO end with CR LF.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\r', "")
}

fn said(output: &Output) -> String {
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// Sends Ctrl-C, and gives what the script prints then.
fn interrupted(child: Child) -> Output {
    signalled(child, libc::SIGINT)
}

fn signalled(child: Child, signal: libc::c_int) -> Output {
    kill(child.id(), signal);
    child.wait_with_output().expect("a child")
}

fn refuse(connection: &mut Connection, key: &str, times: u32) {
    for _ in 0..times {
        ask(connection, &format!("RL.FIXED {key} 1 3600000 COST 2"));
    }
}

#[test]
fn the_commands_print_what_the_page_says() {
    let (mut transcripts, mut scripts) = (0, 0);
    for section in PAGE.split("\n## ") {
        let mut stage = Stage::on(Options::new().tcp().clock(T0).start());
        let shell = Shell::on(stage.server.port());
        let blocks = blocks(section);
        for (index, block) in blocks.iter().enumerate() {
            if block.kind == "console" {
                transcripts += stage.run(block.text);
            }
            if block.kind == "sh" && !APART.contains(&block.name) {
                let printed = shell.run(block.text);
                match blocks.get(index + 1) {
                    Some(next) if next.kind == "text" => {
                        assert_eq!(printed, next.text, "{}", block.name);
                    }
                    _ => assert_ne!(printed, "", "{}", block.name),
                }
                scripts += 1;
            }
        }
    }
    assert!(transcripts >= 40, "only {transcripts} commands found");
    assert!(scripts >= 6, "only {scripts} scripts found");
}

/// The refusals of the page's example, from each kind of call, and what is no refusal.
fn refusals(connection: &mut Connection) {
    refuse(connection, "rl:{42}:search", 5);
    ask(connection, "RL.PEEK rl:{42}:search FIXED 1 1000 COST 2");
    ask(connection, "RL.TOKEN rl:{7}:login 1 1 3600000");
    for _ in 0..3 {
        assert_eq!(ask(connection, "RL.TOKEN rl:{7}:login 1 1 3600000")[0], 0);
    }
    ask(connection, "RL.LEASE rl:{7}:export 1 3600000 job-a");
    for job in ["job-b", "job-c"] {
        let call = format!("RL.LEASE rl:{{7}}:export 1 3600000 {job}");
        assert_eq!(ask(connection, &call)[0], 0);
    }
    refuse(connection, "rl:{9}:search", 1);
}

/// What is counted of these calls. The listener is ended by a signal, and what it has not read by then
/// is lost, so it is given more time in each try.
fn counted(
    shell: &Shell,
    arguments: &str,
    servers: &[Server],
    expected: &str,
    mut calls: impl FnMut(),
) {
    let started = Instant::now();
    for pause in 0.. {
        let child = shell.most_refused(arguments, servers);
        calls();
        thread::sleep(Duration::from_millis(100 << pause));
        let output = interrupted(child);
        assert_eq!(text(&output.stderr), "");
        assert!(output.status.success());
        if text(&output.stdout) == expected {
            return;
        }
        assert!(
            started.elapsed() < DEADLINE,
            "{} instead of {expected}",
            text(&output.stdout)
        );
    }
}

#[test]
fn keys_are_ranked_by_their_refusals_and_the_setting_is_as_before() {
    let (script, expected) = block("most-refused");
    let arguments = script
        .trim()
        .strip_prefix("examples/monitoring/most-refused");
    let arguments = arguments.expect("the script and its arguments");
    for (before, meanwhile) in [("", "Ed"), ("Kx", "xEKd"), ("AKE", "AKE"), ("Ed", "Ed")] {
        let sorted = |flags: String| {
            let mut flags: Vec<char> = flags.chars().collect();
            flags.sort_unstable();
            flags.into_iter().collect::<String>()
        };
        let server = Options::new()
            .tcp()
            .arg("notify-keyspace-events", before)
            .start();
        let shell = Shell::on(server.port());
        let mut connection = server.connect();
        let mut control = server.connect();
        let mut setting = || {
            let (_, flags): (String, String) =
                send(&mut control, &["CONFIG", "GET", "notify-keyspace-events"]);
            sorted(flags)
        };
        let servers = [server];
        counted(&shell, arguments, &servers, expected, || {
            assert_eq!(setting(), sorted(meanwhile.to_owned()));
            refusals(&mut connection);
            send::<()>(&mut connection, &["FLUSHALL"]);
        });
        assert_eq!(setting(), sorted(before.to_owned()));
        let info: String = send(&mut connection, &["INFO", "commandstats"]);
        assert_eq!(
            info.contains("config|set"),
            before != meanwhile,
            "only what has to be set is set"
        );
    }
}

#[test]
fn keys_of_any_name_and_database_are_ranked_and_shown_on_one_line() {
    let server = Options::new().tcp().start();
    let shell = Shell::on(server.port());
    let mut connection = server.connect();
    let keys = ["a b", "x\",\"y", "line\nline", "ü", "%s\\n"];
    let expected = r#"5 db0 "a b"
4 db0 "x\",\"y"
3 db0 "line\nline"
2 db3 "\xc3\xbc"
1 db3 "%s\\n"
15 in all, on 5 keys
"#;
    counted(&shell, "60", &[server], expected, || {
        for (key, times) in keys.iter().zip((1..=5).rev()) {
            let database = if times > 2 { "0" } else { "3" };
            send::<()>(&mut connection, &["SELECT", database]);
            for _ in 0..times {
                let call = ["RL.FIXED", key, "1", "1000", "COST", "2"];
                send::<Vec<i64>>(&mut connection, &call);
            }
        }
    });
}

#[test]
fn what_somebody_else_has_set_meanwhile_stays() {
    let servers = [Options::new().tcp().start()];
    let mut connection = servers[0].connect();
    let shell = Shell::on(servers[0].port());
    let child = shell.most_refused("60", &servers);
    let setting = "notify-keyspace-events";
    send::<()>(&mut connection, &["CONFIG", "SET", setting, "KEA"]);
    let output = interrupted(child);
    assert_eq!(said(&output), "0 in all, on 0 keys\n");
    let found: (String, String) = send(&mut connection, &["CONFIG", "GET", setting]);
    assert_eq!(found.1, "AKE");
}

#[test]
fn a_script_that_is_ended_leaves_no_listener_and_no_setting() {
    let servers = [Options::new().tcp().start()];
    let mut connection = servers[0].connect();
    let shell = Shell::on(servers[0].port());
    let output = signalled(shell.most_refused("60", &servers), libc::SIGTERM);
    assert_eq!(said(&output), "");
    assert_eq!(output.status.code(), Some(1));
    let found: (String, String) = send(&mut connection, &["CONFIG", "GET", "notify*"]);
    assert_eq!(found.1, "");
    wait_until("the listener's end", || {
        send::<u32>(&mut connection, &["PUBSUB", "NUMPAT"]) == 0
    });
}

#[test]
fn listening_ends_by_itself_and_a_lost_connection_is_reported() {
    let servers = [Options::new().tcp().start()];
    let shell = Shell::on(servers[0].port());
    let child = shell.most_refused("3", &servers);
    let mut connection = servers[0].connect();
    send::<()>(&mut connection, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    let output = child.wait_with_output().expect("a child");
    assert_eq!(text(&output.stdout), "0 in all, on 0 keys\n");
    let lost = "most-refused: a connection ended early, so its counts are too low\n";
    assert!(text(&output.stderr).ends_with(lost), "{}", said(&output));
}

#[test]
fn a_user_needs_the_rights_of_the_page_and_no_others() {
    let rights = PAGE.split("**Rights.** `").nth(1).expect("the rights");
    let rights = rights.split('`').next().expect("the rights");
    let servers = [Options::new().tcp().start()];
    let shell = Shell::on(servers[0].port());
    let mut connection = servers[0].connect();
    let arguments = "60 10 --user user --pass any --no-auth-warning";
    drop(servers[0].connect_as(&format!("resetchannels {rights}")));
    let expected = "2 db0 \"k\"\n2 in all, on 1 keys\n";
    counted(&shell, arguments, &servers, expected, || {
        refuse(&mut connection, "k", 2);
    });
    // Without those to the setting, it is left as it is.
    let rights = rights.split(" +config").next().expect("the other rights");
    drop(servers[0].connect_as(&format!("resetchannels {rights}")));
    let output = interrupted(shell.most_refused(arguments, &servers));
    assert_eq!(text(&output.stdout), "0 in all, on 0 keys\n");
    assert!(text(&output.stderr).contains("NOPERM"), "{}", said(&output));
    // And without those to listen, there is nothing to wait for.
    drop(servers[0].connect_as("resetchannels +ping"));
    let script = format!("examples/monitoring/most-refused {arguments}");
    let output = shell.command(&script).output().expect("bash runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("most-refused: NOPERM"));
}

#[test]
fn the_keys_of_a_cluster_are_ranked_together() {
    let cluster = Cluster::start();
    let mut nodes = cluster.connect();
    let shell = Shell::on(cluster.nodes[1].port());
    let expected = "3 db0 \"a\"\n2 db0 \"b\"\n1 db0 \"c\"\n6 in all, on 3 keys\n";
    counted(&shell, "60", &cluster.nodes, expected, || {
        // Each of them is on another node.
        for (key, times) in [("a", 3), ("b", 2), ("c", 1)] {
            let call = format!("RL.FIXED {key} 1 3600000 COST 2");
            for _ in 0..times {
                let calls = nodes.iter_mut().map(|node| {
                    let words: Vec<&str> = call.split(' ').collect();
                    try_send::<Vec<i64>>(node, &words).is_ok()
                });
                assert_eq!(calls.filter(|&answered| answered).count(), 1);
            }
        }
    });
    for node in &mut nodes {
        let found: (String, String) = send(node, &["CONFIG", "GET", "notify-keyspace-events"]);
        assert_eq!(found.1, "");
    }
}

#[test]
fn the_commands_for_a_cluster_reach_every_node() {
    let cluster = Cluster::start();
    let mut nodes = cluster.connect();
    let port = cluster.nodes[0].port();
    let shell = Shell::on(port);
    let run = |name| shell.run(&block(name).0.replace("7000", &port.to_string()));

    let modules = run("loaded-on-a-cluster");
    let loaded = modules
        .lines()
        .filter(|line| line.trim_end() == "rl" || line.ends_with(" rl"));
    assert_eq!(loaded.count(), 3, "{modules}");
    let figures = run("figures-of-a-cluster");
    assert_eq!(
        figures.matches("rl_fixed_admitted:0").count(),
        3,
        "{figures}"
    );

    for tenant in ["a", "b", "c", "42"] {
        for route in ["x", "y"] {
            let call = format!("RL.FIXED rl:{{{tenant}}}:{route} 1 3600000");
            let words: Vec<&str> = call.split(' ').collect();
            let mut taken = nodes
                .iter_mut()
                .map(|node| try_send::<Vec<i64>>(node, &words));
            assert!(taken.any(|taken| taken.is_ok()));
        }
    }
    assert_eq!(run("reset-on-a-cluster"), "2\n");
    let left: u32 = nodes
        .iter_mut()
        .map(|node| send::<u32>(node, &["DBSIZE"]))
        .sum();
    assert_eq!(left, 6);
}

#[test]
fn a_monitor_shows_who_calls_with_another_policy() {
    let server = Options::new().tcp().start();
    let shell = Shell::on(server.port());
    let mut connection = server.connect();
    let (script, example) = block("who-calls");
    let child = shell.command(script).spawn().expect("bash runs");
    let listening = |connection: &mut Connection| {
        send::<String>(connection, &["CLIENT", "LIST"]).contains("cmd=monitor")
    };
    wait_until("a monitor", || listening(&mut connection));
    ask(&mut connection, "RL.TOKEN rl:{42}:search 100 10 1000");
    error(&mut connection, "RL.TOKEN rl:{42}:search 0 10 1000");
    let output = child.wait_with_output().expect("a child");
    let printed = text(&output.stdout);
    let call = |line: &str| line.split_once("] ").expect("an address").1.to_owned();
    assert_eq!(
        printed.lines().map(call).collect::<Vec<_>>(),
        [call(example.trim_end())]
    );
}

#[test]
fn an_application_can_pass_time() {
    let (script, expected) = block("time");
    let port = free_port();
    let shell = Shell::on(port);
    let installed = "/usr/lib/redis/modules/libredis_rl.so";
    assert!(script.contains(installed));
    let script = script.replace(installed, &module().display().to_string());
    let server = on_path(server_binary());
    shell.tool(
        "redis-server",
        &format!("{} --port {port}", server.display()),
    );
    assert_eq!(shell.run(&script), expected);
}

/// An empty server, and one that starts from an old copy, grant at most one limit more.
#[test]
fn an_old_backup_grants_what_was_taken_since() {
    let forms = [
        "RL.FIXED k 10 86400000",
        "RL.TOKEN k 10 10 86400000",
        "RL.SLIDE k 10 86400000",
        "RL.SLIDE k 10 86400000 EXACT",
    ];
    let hour = 3_600 * SECOND;
    for form in forms {
        let server = Server::at(T0);
        let mut connection = server.connect();
        ask(&mut connection, &format!("{form} COST 3"));
        send::<()>(&mut connection, &["SAVE"]);
        server.set_clock(T0 + hour);
        ask(&mut connection, &format!("{form} COST 4"));
        let copy = server.stop("NOSAVE");
        let restored = Options::new().clock(T0 + 2 * hour).start_in(copy);
        let left = ask(&mut restored.connect(), &format!("{form} UPTO 10"))[0];
        assert_eq!(left, 7, "{form}");
        drop(restored);

        // Where all is over by then, as if it had never been.
        let server = Server::at(T0);
        let mut connection = server.connect();
        ask(&mut connection, &format!("{form} COST 10"));
        send::<()>(&mut connection, &["SAVE"]);
        let restored = Options::new()
            .clock(T0 + 48 * hour)
            .start_in(server.stop("NOSAVE"));
        let left = ask(&mut restored.connect(), &format!("{form} UPTO 10"))[0];
        assert_eq!(left, 10, "{form}");
    }
}

#[test]
fn places_that_an_operator_takes_block_new_leases_until_they_end() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let lease = |id: &str, ttl_ms: u32| format!("RL.LEASE k 2 {ttl_ms} {id}");
    let mut take = |call: &str| ask(&mut connection, call)[0];
    assert_eq!(take(&lease("job-a", 30_000)), 1);
    assert_eq!(take(&lease("blocked-1", 600_000)), 1);
    assert_eq!(take(&lease("blocked-2", 600_000)), 0, "job-a goes on");
    assert_eq!(take(&format!("{} RELEASE", lease("job-a", 30_000))), 1);
    assert_eq!(take(&lease("blocked-2", 600_000)), 1);
    server.set_clock(T0 + 599 * SECOND);
    assert_eq!(take(&lease("job-b", 30_000)), 0);
    server.set_clock(T0 + 600 * SECOND);
    assert_eq!(take(&lease("job-b", 30_000)), 1);
}
