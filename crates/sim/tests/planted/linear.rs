//! The search for an order notices defects that are planted in the engine.

use shoal_base::planted::{Defect, plant};
use shoal_sim::linear::library;

#[test]
fn planted_defects_have_no_order() {
    let _alone = super::alone();
    for defect in [Defect::LinksKept, Defect::EntriesKept] {
        plant(Some(defect));
        let found = library::run(0..2_000);
        plant(None);
        let message = found.expect_err(defect.name());
        assert!(message.contains("not linearisable"), "{}: {message}", defect.name());
    }
    library::run(0..400).expect("nothing is planted");
}
