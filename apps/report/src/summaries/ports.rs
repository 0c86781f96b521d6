//! UDP packets and bytes by port.

use super::{StreamFields, stream_fields};
use crate::module_records::{RecordSummary, ReportSection, SectionContext};
use crate::series::float;
use crate::table::{HtmlCell, table_with_bars};
use crate::talkers::PacketBytes;
use crate::top::TopKeys;
use crate::value;
use weir_rows::text::grouped;
use weir_units::Bytes;
use {weir_admission::Manifest, weir_session::Record};

const ROWS: usize = 20;

/// Summary of module `port-count`.
#[derive(Debug)]
pub(crate) struct PortSummary {
    totals: StreamFields<5>,
    ports: TopKeys<u64, PortTraffic>,
}

/// Traffic to and from a port.
#[derive(Debug, Default)]
struct PortTraffic {
    to: PacketBytes,
    from: PacketBytes,
}

impl PortSummary {
    pub(crate) fn new(manifest: &Manifest) -> Option<Self> {
        let totals = stream_fields(
            manifest,
            "totals",
            ["port", "to_packets", "to_bytes", "from_packets", "from_bytes"],
        )?;
        Some(Self { totals, ports: TopKeys::default() })
    }

    fn add_row(&mut self, record: &Record<'_>) -> Option<()> {
        let [port, packets_to, bytes_to, packets_from, bytes_from] = &self.totals.fields;
        let read = |field| value::unsigned(field, record);
        let to = PacketBytes { packets: read(packets_to)?, bytes: read(bytes_to)? };
        let from = PacketBytes { packets: read(packets_from)?, bytes: read(bytes_from)? };
        let traffic = self.ports.add(read(port)?, to.packets.saturating_add(from.packets));
        traffic.to.add(to);
        traffic.from.add(from);
        Some(())
    }
}

impl RecordSummary for PortSummary {
    fn record(&mut self, stream: u16, record: &Record<'_>) {
        if stream == self.totals.stream {
            self.add_row(record);
        }
    }

    fn section(&self, context: &SectionContext<'_>) -> Option<ReportSection> {
        let heaviest = self.ports.heaviest(ROWS);
        let most = heaviest.first()?.1.max(1);
        let head = [
            HtmlCell::right("UDP port"),
            HtmlCell::right("packets to it"),
            HtmlCell::right("bytes to it"),
            HtmlCell::right("packets from it"),
            HtmlCell::right("bytes from it"),
        ];
        let rows = heaviest.iter().map(|(port, packets, traffic)| {
            let cells = vec![
                HtmlCell::right(&port.to_string()),
                HtmlCell::right(&grouped(traffic.to.packets)),
                HtmlCell::right(&Bytes(traffic.to.bytes).to_string()),
                HtmlCell::right(&grouped(traffic.from.packets)),
                HtmlCell::right(&Bytes(traffic.from.bytes).to_string()),
            ];
            (cells, float(*packets) / float(most))
        });
        let all = self.ports.len();
        Some(ReportSection {
            title: "UDP traffic by port",
            note: if all > ROWS {
                format!("The {ROWS} busiest of {all} ports. The bar is the packets in both directions.")
            } else {
                "The configured ports. The bar is the packets in both directions.".to_owned()
            },
            body: table_with_bars(&format!("UDP traffic by port ({})", context.label), &head, rows),
            highlight: None,
        })
    }
}
