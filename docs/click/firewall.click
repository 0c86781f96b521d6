// A firewall between two interfaces: it forwards Ethernet frames as a bridge does, if its rules allow them.
//
//     weir graph run firewall.click INSIDE=eth0 OUTSIDE=eth1 SERVER=192.0.2.10 NET=192.0.2.0/24
//
// Hosts on both sides have addresses of the same network. The firewall has none.

define($INSIDE eth0, $OUTSIDE eth1, $SERVER 192.0.2.10, $NET 192.0.2.0/24);

// Outputs of the rules.
define($ALLOW 0, $DENY 1);

FromDevice($INSIDE, PROMISC true, SNIFFER false) -> Paint(0) -> kinds :: Classifier(12/0806, 12/0800, -);
FromDevice($OUTSIDE, PROMISC true, SNIFFER false) -> Paint(1) -> kinds;

// ARP passes, so that hosts find each other. What is neither ARP nor IPv4 does not.
kinds [0] -> onward :: PaintSwitch;
kinds [1] -> check :: CheckIPHeader(14) -> rules :: IPFilter(
  // Addresses that no packet on a link can have.
  $DENY  src net 0.0.0.0/8,
  $DENY  src net 127.0.0.0/8,
  $DENY  src net 169.254.0.0/16,
  $DENY  src net 224.0.0.0/4,
  $DENY  src net 240.0.0.0/4,
  $DENY  dst net 0.0.0.0/8,
  $DENY  dst net 127.0.0.0/8,
  $DENY  dst net 240.0.0.0/4,
  // Scans, and fragments, which hide their ports.
  $DENY  tcp opt syn and tcp opt fin,
  $DENY  tcp opt syn and tcp opt rst,
  $DENY  tcp opt fin and not tcp opt ack,
  $DENY  ip frag,
  // Services that must not be reached from outside.
  $DENY  dst port 23,
  $DENY  dst port 69,
  $DENY  dst port 111,
  $DENY  dst port 135,
  $DENY  dst port 137,
  $DENY  dst port 138,
  $DENY  dst port 139,
  $DENY  dst port 161,
  $DENY  dst port 389,
  $DENY  dst port 445,
  $DENY  dst port 512,
  $DENY  dst port 513,
  $DENY  dst port 514,
  $DENY  dst port 1433,
  $DENY  dst port 1900,
  $DENY  dst port 2049,
  $DENY  dst port 3306,
  $DENY  dst port 3389,
  $DENY  dst port 5432,
  $DENY  dst port 5900,
  $DENY  dst port 6000,
  $DENY  dst port 6379,
  $DENY  dst port 11211,
  $DENY  dst port 27017,
  // The services of the server, and its answers.
  $ALLOW dst host $SERVER and dst tcp port 22,
  $ALLOW dst host $SERVER and dst tcp port 25,
  $ALLOW dst host $SERVER and dst tcp port 80,
  $ALLOW dst host $SERVER and dst tcp port 443,
  $ALLOW src host $SERVER and tcp opt ack,
  $ALLOW dst host $SERVER and dst udp port 53,
  $ALLOW src host $SERVER and src udp port 53,
  // Errors, and tests of the way.
  $ALLOW icmp type echo,
  $ALLOW icmp type echo-reply,
  $ALLOW icmp type unreachable,
  $ALLOW icmp type timeexceeded,
  // Connections that are made from inside, and everything else.
  $ALLOW src net $NET and tcp opt syn and not dst net $NET,
  $ALLOW dst net $NET and tcp opt ack and not src net $NET,
  $DENY  all);
kinds [2] -> others :: Counter -> Discard;
check [1] -> bad :: Counter -> Discard;

rules [0] -> allowed :: Counter -> onward;
rules [1] -> denied :: Counter -> Discard;

onward [0] -> Queue(1000) -> to_outside :: ToDevice($OUTSIDE);
onward [1] -> Queue(1000) -> to_inside :: ToDevice($INSIDE);
