//! libpcap's programs give the same results in weir's interpreter as in libpcap's.

use crate::expressions::{USUAL, packets_of};
use crate::{accepts, theirs};
use pcap::BpfProgram;
use weir_demux::{FilterProgram, Instruction};
use weir_wire::LinkType;

/// The instructions of libpcap's program, parsed from its printed form.
pub(crate) fn instructions(program: &BpfProgram) -> Vec<Instruction> {
    let instruction = |shown: String| {
        let fields: Vec<u32> = shown.split_whitespace().map(|field| field.parse().unwrap()).collect();
        let [code, jt, jf, k] = fields[..] else { panic!("{shown}") };
        Instruction {
            code: code.try_into().unwrap(),
            jt: jt.try_into().unwrap(),
            jf: jf.try_into().unwrap(),
            k,
        }
    };
    program.get_instructions().iter().map(|one| instruction(one.to_string())).collect()
}

#[test]
fn libpcaps_programs_give_the_same_result_in_both_interpreters() {
    let mut verdicts = [0_usize; 2];
    for link_type in LinkType::ALL {
        let packets = packets_of(link_type, 300);
        for (text, is_optimised) in USUAL.iter().flat_map(|text| [(text, true), (text, false)]) {
            // libpcap's programs for Geneve read scratch memory that was never written.
            let Ok(program) = theirs(text, link_type, is_optimised) else { continue };
            if text.contains("geneve") || text.contains("chain") {
                continue;
            }
            let ours = FilterProgram::new(&instructions(&program)).unwrap();
            for packet in &packets {
                let verdict = accepts(&ours, packet);
                assert_eq!(verdict, program.filter(packet), "{text}: {packet:02x?}");
                verdicts[usize::from(verdict)] += 1;
            }
        }
    }
    assert!(verdicts[0] > 100_000 && verdicts[1] > 50_000, "{verdicts:?}");
}
