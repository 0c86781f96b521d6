// An IPv4 router with two interfaces.
//
//     weir graph run router.click DEV1=eth0 IP1=10.1.0.1 BITS1=24 ETH1=$(cat /sys/class/net/eth0/address) \
//         DEV2=eth1 IP2=10.2.0.1 BITS2=24 ETH2=$(cat /sys/class/net/eth1/address) MTU2=1400
//
// The addresses are those of the graph: the host's own interfaces have none.

define($DEV1 eth0, $IP1 10.1.0.1, $BITS1 24, $MTU1 1500,
       $DEV2 eth1, $IP2 10.2.0.1, $BITS2 24, $MTU2 1500);

// A link: IP packets that arrive go to the output. Those at the input get an Ethernet header, and leave.
elementclass Link { $color, $device, $ip, $eth |
  FromDevice($device, SNIFFER false) -> kinds :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
  out :: Queue(1000) -> to :: ToDevice($device);
  kinds [0] -> ARPResponder($ip $eth) -> out;
  kinds [1] -> [1] query :: ARPQuerier($ip, $eth) -> out;
  kinds [2] -> Paint($color) -> Strip(14) -> output;
  kinds [3] -> Discard;
  input -> query;
}

// The way of a packet to a link. Output 1 has the ICMP errors.
elementclass Forward { $color, $ip, $mtu |
  input -> DropBroadcasts -> redirect :: PaintTee($color) -> options :: IPGWOptions($ip) -> FixIPSrc($ip)
        -> ttl :: DecIPTTL -> fragment :: IPFragmenter($mtu) -> output;
  redirect [1] -> ICMPError($ip, redirect, host) -> [1] output;
  options [1] -> ICMPError($ip, parameterproblem, erroratptr) -> [1] output;
  ttl [1] -> ICMPError($ip, timeexceeded, transit) -> [1] output;
  fragment [1] -> ICMPError($ip, unreachable, needfrag, PMTU $mtu) -> [1] output;
}

link1 :: Link(1, $DEV1, $IP1, $ETH1);
link2 :: Link(2, $DEV2, $IP2, $ETH2);
way1 :: Forward(1, $IP1, $MTU1);
way2 :: Forward(2, $IP2, $MTU2);

routes :: StaticIPLookup($IP1/32 0, $IP2/32 0, $IP1/$BITS1 1, $IP2/$BITS2 2, 0.0.0.0/0 3);

check :: CheckIPHeader(INTERFACES $IP1/$BITS1 $IP2/$BITS2) -> routes;
link1 -> check;
link2 -> check;
check [1] -> bad :: Counter -> Discard;

// To the router itself: no port is open.
routes [0] -> IPClassifier(tcp or udp) -> ICMPError($IP1, unreachable, port) -> routes;
routes [1] -> way1 -> link1;
routes [2] -> way2 -> link2;
routes [3] -> ICMPError($IP1, unreachable, net) -> routes;

// Errors go back to the routes.
way1 [1] -> routes;
way2 [1] -> routes;
