// An IPv6 router with two interfaces.
//
//     weir graph run router6.click DEV1=eth0 IP1=fd00:1::1 BITS1=64 ETH1=$(cat /sys/class/net/eth0/address) \
//         DEV2=eth1 IP2=fd00:2::1 BITS2=64 ETH2=$(cat /sys/class/net/eth1/address) MTU2=1400
//
// The addresses are those of the graph: the host's own interfaces have none.

define($DEV1 eth0, $IP1 fd00:1::1, $BITS1 64, $MTU1 1500,
       $DEV2 eth1, $IP2 fd00:2::1, $BITS2 64, $MTU2 1500);

// A link: IPv6 packets that arrive go to the output. Those at the input get an Ethernet header, and leave.
elementclass Link { $device, $ip, $eth |
  FromDevice($device, SNIFFER false) -> kinds :: Classifier(12/86dd 20/3aff 54/87, 12/86dd 20/3aff 54/88, 12/86dd, -);
  out :: Queue(1000) -> to :: ToDevice($device);
  kinds [0] -> IP6NDAdvertiser($ip/128 $eth) -> out;
  kinds [1] -> [1] neighbors :: IP6NDSolicitor($ip, $eth) -> out;
  kinds [2] -> Strip(14) -> output;
  kinds [3] -> Discard;
  input -> neighbors;
}

// The way of a packet to a link. Output 1 has the ICMPv6 errors. Routers divide no packets of IPv6.
elementclass Forward { $ip, $mtu |
  input -> DropBroadcasts -> hops :: DecIP6HLIM -> length :: CheckLength($mtu) -> output;
  hops [1] -> ICMP6Error($ip, 3, 0) -> [1] output;
  length [1] -> long :: Counter -> ICMP6Error($ip, 2, 0, PMTU $mtu) -> [1] output;
}

link1 :: Link($DEV1, $IP1, $ETH1);
link2 :: Link($DEV2, $IP2, $ETH2);
way1 :: Forward($IP1, $MTU1);
way2 :: Forward($IP2, $MTU2);

// Packets to a link alone, and to groups, are not forwarded.
routes :: LookupIP6Route($IP1/128 0, $IP2/128 0, $IP1/$BITS1 1, $IP2/$BITS2 2, fe80::/10 4, ff00::/8 4, ::/0 3);

check :: CheckIP6Header(:: ::1) -> GetIP6Address(24) -> routes;
link1 -> check;
link2 -> check;
check [1] -> bad :: Counter -> Discard;

// To the router itself: no port is open.
routes [0] -> own :: Classifier(6/06, 6/11, -);
own [0] -> ports :: ICMP6Error($IP1, 1, 4) -> routes;
own [1] -> ports;
own [2] -> Discard;
routes [1] -> way1 -> link1;
routes [2] -> way2 -> link2;
routes [3] -> ICMP6Error($IP1, 1, 0) -> routes;
routes [4] -> Discard;

// Errors go back to the routes.
way1 [1] -> routes;
way2 [1] -> routes;
