//! The pages: each link leads to a file and a heading that are there, each page is linked, and
//! numbers that the repository holds are those on the page.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A page's anchors, as GitHub makes them of its headings, and where its links lead.
struct Page {
    anchors: BTreeSet<String>,
    links: Vec<String>,
}

fn anchor(heading: &str) -> String {
    let letters = heading.to_lowercase();
    letters
        .chars()
        .filter(|letter| letter.is_alphanumeric() || "-_ ".contains(*letter))
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

fn read(path: &Path) -> Page {
    let text = fs::read_to_string(path).unwrap();
    let mut page = Page {
        anchors: BTreeSet::new(),
        links: Vec::new(),
    };
    let mut heading = None;
    for event in Parser::new_ext(&text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                page.anchors.insert(anchor(&heading.take().unwrap()));
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push(dest_url.into_string());
            }
            _ => {}
        }
    }
    page
}

/// Every page of the repository, by its path.
fn pages() -> BTreeMap<PathBuf, Page> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![top.to_owned()];
    let mut pages = BTreeMap::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                // Hidden folders but one, and what was built or installed, are not ours.
                let ours = name == ".github" || !name.starts_with('.');
                if ours && !["target", "node_modules"].contains(&name) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.insert(path.canonicalize().unwrap(), read(&path));
            }
        }
    }
    pages
}

#[test]
fn each_link_leads_to_what_is_there() {
    let pages = pages();
    let mut wrong = Vec::new();
    for (path, page) in &pages {
        for link in &page.links {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => Ok(path.clone()),
                file => path.parent().unwrap().join(file).canonicalize(),
            };
            let found = target.is_ok_and(|target| {
                anchor.is_empty()
                    || pages
                        .get(&target)
                        .is_some_and(|page| page.anchors.contains(anchor))
            });
            if !found {
                wrong.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "no such place:\n{}", wrong.join("\n"));
}

#[test]
fn each_page_is_reached_from_the_readme() {
    let pages = pages();
    let top = Path::new(env!("CARGO_MANIFEST_DIR"))
        .canonicalize()
        .unwrap();
    let mut reached = BTreeSet::new();
    let mut next = vec![top.join("README.md")];
    while let Some(path) = next.pop() {
        if !reached.insert(path.clone()) {
            continue;
        }
        let Some(page) = pages.get(&path) else {
            continue;
        };
        for link in &page.links {
            let file = link.split('#').next().unwrap();
            if let Ok(target) = path.parent().unwrap().join(file).canonicalize() {
                next.push(target);
            }
        }
    }
    let lost: Vec<_> = pages
        .keys()
        .filter(|path| !reached.contains(*path) && !path.starts_with(top.join(".github")))
        .collect();
    assert!(lost.is_empty(), "no page links to {lost:?}");
}

#[test]
fn the_page_about_performance_has_the_counts_of_the_table_in_benches() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(top.join("benches/instructions.tsv")).unwrap();
    let counts: BTreeMap<&str, u64> = table
        .lines()
        .filter(|line| line.starts_with("redis-7.0.15"))
        .map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            (columns[1], columns[2].parse().unwrap())
        })
        .collect();
    let page = fs::read_to_string(top.join("docs/performance.md")).unwrap();
    let mut rows = 0;
    for line in page.lines() {
        // | `RL.FIXED admitted` | 9316 | …
        let Some((name, rest)) = line
            .strip_prefix("| `")
            .and_then(|row| row.split_once("` | "))
        else {
            continue;
        };
        let shown = rest.split(' ').next().unwrap().parse::<u64>();
        if let (Some(count), Ok(shown)) = (counts.get(name), shown) {
            assert!(
                shown.abs_diff(*count) * 100 <= *count,
                "{name}: {shown} on the page, {count} in the table"
            );
            rows += 1;
        }
    }
    assert!(rows >= 15, "only {rows} rows are in both");
}
