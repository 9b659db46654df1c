package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// countInterval is the time between two readings of the counters of the kernel.
const countInterval = 100 * time.Millisecond

// counters of the kernel for packets from others. IPv4 packets are counted whatever they contain; of IPv6 those that the
// network itself does not need.
var counters = []string{"Ip:InReceives", "Tcp:InSegs", "Udp6InDatagrams", "Udp6NoPorts", "Icmp6InEchos"}

// count accepts connections at an address, and prints the addresses of this Pod. Whenever it has received more packets,
// it prints their number.
func count(address string) error {
	listener, err := net.Listen("tcp", address) //nolint:noctx // until the process ends
	if err != nil {
		return err
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_ = connection.Close()
		}
	}()
	if err := printAddresses(); err != nil {
		return err
	}
	for last := -1; ; time.Sleep(countInterval) {
		packets, err := receivedPackets()
		if err != nil {
			return err
		}
		if packets != last {
			fmt.Println("packets", packets)
		}
		last = packets
	}
}

func printAddresses() error {
	interfaces, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			return err
		}
		for _, a := range addresses {
			ip, _, err := net.ParseCIDR(a.String())
			switch {
			case err != nil:
				return err
			case ip.IsLinkLocalUnicast():
				fmt.Printf("address %s%%%s\n", ip, i.Name)
			case !ip.IsLoopback():
				fmt.Println("address", ip)
			}
		}
	}
	fmt.Println("listening")
	return nil
}

// receivedPackets returns the sum of the counters.
func receivedPackets() (int, error) {
	total, found := 0, 0
	for _, file := range []string{"/proc/net/snmp", "/proc/net/snmp6"} {
		content, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return 0, err
		}
		for name, value := range parseCounters(string(content)) {
			if slices.Contains(counters, name) {
				total += value
				found++
			}
		}
	}
	if found < 2 {
		return 0, errors.New("the kernel has no counters of packets")
	}
	return total, nil
}

// parseCounters reads both formats: lines "NAME VALUE", and pairs of lines "GROUP: NAME…" and "GROUP: VALUE…".
func parseCounters(content string) map[string]int {
	parsed := map[string]int{}
	var names []string
	for line := range strings.Lines(content) {
		words := strings.Fields(line)
		switch {
		case len(words) == 2 && !strings.HasSuffix(words[0], ":"):
			parsed[words[0]], _ = strconv.Atoi(words[1])
		case len(names) > 0 && len(words) == len(names) && words[0] == names[0]:
			for i := 1; i < len(words); i++ {
				parsed[words[0]+names[i]], _ = strconv.Atoi(words[i])
			}
			names = nil
		default:
			names = words
		}
	}
	return parsed
}
