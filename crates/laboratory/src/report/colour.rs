//! Colours: those of Okabe and Ito (2008), which the colour-blind can tell apart, and the themes.
//!
//! Figures are drawn in marker colours. Afterwards each marker becomes a class, so that the same
//! figure follows the light or the dark theme around it.

use plotters::style::RGBColor;

/// Colours of systems that are always drawn in the same one: Shoal's are the warm ones.
const FIXED: [(&str, u8); 19] = [
    ("Shoal, library", 0),
    ("Shoal, session", 8),
    ("Shoal, mount", 1),
    ("Shoal, tools", 0),
    ("Shoal, shortcut", 0),
    ("Shoal, off", 1),
    ("Shoal, intents", 2),
    ("Shoal, needed", 0),
    ("Shoal, table", 1),
    ("Shoal, list", 2),
    ("shoal", 0),
    ("xarray", 0),
    ("needed", 0),
    ("tmpfs", 7),
    ("XFS", 3),
    ("XFS, parent pointers", 4),
    ("ext4", 5),
    ("ext4, orphan file", 6),
    ("btrfs", 2),
];

/// In the light theme, and in the dark one. The yellow is darker on white than theirs.
pub(super) const SERIES: [[&str; 2]; 9] = [
    ["#d55e00", "#f07022"],
    ["#e69f00", "#f0b030"],
    ["#cc79a7", "#d98fb8"],
    ["#0072b2", "#3d9ad6"],
    ["#56b4e9", "#8ccbf2"],
    ["#009e73", "#1fb88d"],
    ["#b3a300", "#f0e442"],
    ["#8a8a8a", "#9a9a9a"],
    ["#444444", "#dddddd"],
];

/// A colour of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ink {
    Text,
    Muted,
    Grid,
    Background,
    /// Dark in both themes: bars are bright in both.
    OnBar,
    /// Of a system.
    Series(u8),
}

const PLAIN: [(Ink, &str, [&str; 2]); 5] = [
    (Ink::Text, "t", ["#1c1e21", "#e4e6e9"]),
    (Ink::Muted, "m", ["#5b6067", "#a3a9b1"]),
    (Ink::Grid, "g", ["#dfe2e6", "#363b42"]),
    (Ink::Background, "b", ["#ffffff", "#15181c"]),
    (Ink::OnBar, "o", ["#1c1e21", "#101214"]),
];

impl Ink {
    /// The colour that it is drawn in.
    pub(super) fn marker(self) -> RGBColor {
        match self {
            Ink::Text => RGBColor(1, 1, 1),
            Ink::Muted => RGBColor(1, 1, 2),
            Ink::Grid => RGBColor(1, 1, 3),
            Ink::Background => RGBColor(1, 1, 4),
            Ink::OnBar => RGBColor(1, 1, 5),
            Ink::Series(slot) => RGBColor(2, 2, slot),
        }
    }
}

/// All colours: the marker, the class, and the light and the dark one.
fn all() -> impl Iterator<Item = (RGBColor, String, [&'static str; 2])> {
    let plain = PLAIN.iter().map(|(ink, class, both)| (ink.marker(), (*class).to_owned(), *both));
    let series = SERIES.iter().zip(0_u8..);
    let series = series.map(|(both, slot)| (Ink::Series(slot).marker(), format!("s{slot}"), *both));
    plain.chain(series)
}

/// Replaces the markers in a drawn figure by classes.
pub(super) fn classes(svg: &str) -> String {
    let mut svg = svg.to_owned();
    for (marker, class, _) in all() {
        let RGBColor(r, g, b) = marker;
        let hex = format!("#{r:02X}{g:02X}{b:02X}");
        svg = svg.replace(&format!("fill=\"{hex}\""), &format!("class=\"f-{class}\""));
        svg = svg.replace(&format!("stroke=\"{hex}\""), &format!("class=\"l-{class}\""));
    }
    svg
}

/// Returns the style of a figure that stands alone.
pub(super) fn style_alone() -> String {
    let rules = |theme: usize| -> String {
        let rule = |(_, class, both): (RGBColor, String, [&str; 2])| {
            let colour = both[theme];
            format!(".f-{class}{{fill:{colour}}}.l-{class}{{stroke:{colour}}}")
        };
        all().map(rule).collect()
    };
    let dark = rules(1);
    format!("{}@media (prefers-color-scheme: dark){{{dark}}}", rules(0))
}

/// Returns the style of all figures within a page: rules by variables, whose values are those of
/// the theme. On paper the theme is the light one.
pub(super) fn style_page() -> String {
    let values = |theme: usize| -> String {
        all().map(|(_, class, both)| format!("--{class}:{};", both[theme])).collect()
    };
    let rule = |(_, class, _): (RGBColor, String, [&str; 2])| {
        format!(".f-{class}{{fill:var(--{class})}}.l-{class}{{stroke:var(--{class})}}\n")
    };
    let rules: String = all().map(rule).collect();
    format!(
        ":root{{color-scheme:light dark;{}}}\n\
         @media screen and (prefers-color-scheme: dark){{:root{{{}}}}}\n\
         @media print{{:root{{color-scheme:light}}}}\n{rules}",
        values(0),
        values(1)
    )
}

/// Returns the colours of the systems, by their order: fixed ones, then those that are left.
pub(super) fn assign(systems: &[String]) -> Vec<u8> {
    let fixed = |name: &str| FIXED.iter().find(|it| it.0 == name).map(|it| it.1);
    let mut used = Vec::new();
    let first: Vec<Option<u8>> = systems
        .iter()
        .map(|name| {
            let slot = fixed(name).filter(|slot| !used.contains(slot));
            used.extend(slot);
            slot
        })
        .collect();
    let is_ours = |name: &str| name.to_lowercase().starts_with("shoal");
    let ours = [0, 1, 2, 6, 8, 3, 4, 5, 7];
    let others = [3, 4, 5, 7, 2, 6, 8, 1, 0];
    let mut slots = Vec::new();
    for (name, slot) in systems.iter().zip(first) {
        let order = if is_ours(name) { ours } else { others };
        let free = || order.into_iter().find(|slot| !used.contains(slot));
        // More systems than colours: the last one again, told apart by order and numbers.
        let slot = slot.or_else(free).unwrap_or(8);
        used.push(slot);
        slots.push(slot);
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_have_colours_of_their_own() {
        let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        assert_eq!(assign(&names(&["Shoal, library", "Shoal, mount", "XFS"])), [0, 1, 3]);
        let slots = assign(&names(&["Shoal, mount", "new", "tmpfs", "Shoal, x", "XFS", "old"]));
        let mut distinct = slots.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), slots.len(), "{slots:?}");
        assert_eq!(assign(&names(&["a"; 12])).len(), 12);
    }

    #[test]
    fn markers_become_classes() {
        let svg = classes("<rect fill=\"#010104\"/><path stroke=\"#020200\" fill=\"none\"/>");
        assert_eq!(svg, "<rect class=\"f-b\"/><path class=\"l-s0\" fill=\"none\"/>");
        assert!(style_alone().contains("prefers-color-scheme: dark"));
    }
}
