//! Tests of the writers: known rows, and rows with hostile texts.

mod exports {
    mod eve;
    mod ipfix;
    mod rows;
    mod zeek;
}
