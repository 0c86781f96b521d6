// A translation of addresses (NAT) with two interfaces: hosts inside share the address of the outside.
//
//     weir graph run nat.click INSIDE=eth0 IP1=10.1.0.1 ETH1=$(cat /sys/class/net/eth0/address) \
//         OUTSIDE=eth1 IP2=192.0.2.2 BITS2=24 ETH2=$(cat /sys/class/net/eth1/address) GATEWAY=192.0.2.1
//
// IP1 is the router of the hosts inside. The addresses are those of the graph: the host's own interfaces have none.

define($INSIDE eth0, $IP1 10.1.0.1, $OUTSIDE eth1, $IP2 192.0.2.2, $BITS2 24, $GATEWAY 192.0.2.1, $MTU 1500);

// A link: whole IP datagrams that arrive go to the output. Those at the input get an Ethernet header, and leave. Output 1
// has the errors about those that are too long.
elementclass Link { $device, $ip, $eth, $mtu |
  FromDevice($device, SNIFFER false) -> kinds :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
  out :: Queue(1000) -> to :: ToDevice($device);
  kinds [0] -> ARPResponder($ip $eth) -> out;
  kinds [1] -> [1] query :: ARPQuerier($ip, $eth) -> out;
  // Fragments other than the first have no ports, so datagrams are put together.
  kinds [2] -> Strip(14) -> CheckIPHeader -> IPReassembler -> output;
  kinds [3] -> Discard;
  input -> fragment :: IPFragmenter($mtu) -> query;
  fragment [1] -> ICMPError($ip, unreachable, needfrag, PMTU $mtu) -> [1] output;
}

inside :: Link($INSIDE, $IP1, $ETH1, $MTU);
outside :: Link($OUTSIDE, $IP2, $ETH2, $MTU);
others :: Counter -> Discard;

// The address of the outside, with ports and ICMP identifiers that the graph chooses.
IPRewriterPatterns(address $IP2 1024-65535 - -);
flows :: IPRewriter(pattern address 0 1, drop);
pings :: ICMPPingRewriter(pattern address 0 1, drop);
// Errors about translated packets, for the hosts inside.
errors :: ICMPRewriter(flows pings);

// From the inside: connections, FTP's control connections, and pings.
inside -> DropBroadcasts -> ttl1 :: DecIPTTL -> from_inside :: IPClassifier(
  dst host $IP1, dst tcp port 21, tcp or udp, icmp type echo, -);
ttl1 [1] -> ICMPError($IP1, timeexceeded, transit) -> inside;
from_inside [0] -> others;
from_inside [1] -> FTPPortMapper(flows, flows, 0) -> flows;
from_inside [2] -> flows;
from_inside [3] -> pings;
from_inside [4] -> others;

// From the outside: replies, and errors.
outside -> ttl2 :: DecIPTTL -> from_outside :: IPClassifier(
  dst host $IP2 and (tcp or udp), dst host $IP2 and icmp type echo-reply, dst host $IP2 and icmp, -);
ttl2 [1] -> ICMPError($IP2, timeexceeded, transit) -> outside_routes :: StaticIPLookup(
  $IP2/$BITS2 0, 0.0.0.0/0 $GATEWAY 0) -> outside;
from_outside [0] -> [1] flows;
from_outside [1] -> [1] pings;
from_outside [2] -> errors;
from_outside [3] -> others;

flows [0], pings [0] -> outside_routes;
flows [1], pings [1] -> inside;
errors [0] -> inside;
inside [1] -> others;
// A translated packet that is too long for the outside: the error is for the host inside.
outside [1] -> errors;
