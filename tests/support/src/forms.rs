//! One call of each form, as a client sends it: of a limit of 5 in a minute, or of 5 leases of one.

pub const FIXED: &str = "RL.FIXED k 5 60000";
pub const TOKEN: &str = "RL.TOKEN k 5 1 60000";
pub const SLIDE: &str = "RL.SLIDE k 5 60000";
pub const EXACT: &str = "RL.SLIDE k 5 60000 EXACT";

pub const LEASE: &str = "RL.LEASE k 5 60000 me";

/// Those that take units, all on the same key.
pub const ON_ONE_KEY: [&str; 4] = [FIXED, TOKEN, SLIDE, EXACT];

/// Each on a key of its own.
pub const ON_OWN_KEYS: [&str; 4] = [
    "RL.FIXED f 5 60000",
    "RL.TOKEN t 5 1 60000",
    "RL.SLIDE s 5 60000",
    "RL.SLIDE e 5 60000 EXACT",
];

/// One limit of each kind, and the keys that they are on.
pub const ALL: &str = "RL.ALL 5 f t s e l FIXED 5 60000 TOKEN 5 1 60000 SLIDE 5 60000 \
                       SLIDE 5 60000 EXACT LEASE 5 60000 me";
pub const KEYS_OF_ALL: [&str; 5] = ["f", "t", "s", "e", "l"];

/// The words of `RL.ALL` for limits, each a key and the policy on it.
pub fn all(limits: &[(&str, &str)]) -> String {
    let (keys, policies): (Vec<&str>, Vec<&str>) = limits.iter().copied().unzip();
    let (keys, policies) = (keys.join(" "), policies.join(" "));
    format!("RL.ALL {} {keys} {policies}", limits.len())
}

/// A form with each word that settles behind it, as far as the form takes it.
pub fn settling(form: &str) -> Vec<String> {
    let words = ["COST 2 FORCE", "FORCE", "UPTO 6", "REFUND 1"];
    let takes = |word: &&str| !(word.ends_with("FORCE") && form.ends_with("EXACT"));
    let calls = words.iter().filter(|word| takes(word));
    calls.map(|word| format!("{form} {word}")).collect()
}
