// Command egressprobe tests what a Pod reaches.
//
//	egressprobe serve ADDRESS   serves TLS with a certificate of its own
//	egressprobe try TARGET…     prints what it reaches, and ends successfully
//	egressprobe attack TARGET…  tries the targets until it is killed, in two processes that ignore SIGTERM
//	egressprobe count ADDRESS   accepts connections, and prints its addresses and how many packets it received
//
// A target is an https URL, which it requests as Go programs do, through HTTPS_PROXY if that is set; tcp:HOST:PORT,
// udp:HOST:PORT, dns:HOST, or name:NAME@HOST:PORT, a request through the proxy to a host with the TLS server name of another.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

const timeout = 5 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "egressprobe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) > 1 && args[0] == "try":
		for _, target := range args[1:] {
			result := "reached"
			if err := try(target, timeout); err != nil {
				fmt.Println("#", target, err)
				result = "did not reach"
			}
			fmt.Println(result, target)
		}
		return nil
	case len(args) > 1 && args[0] == "attack":
		return attack(args[1:])
	case len(args) == 2 && args[0] == "count":
		return count(args[1])
	}
	return errors.New("see the comment of the program")
}

func serve(address string) error {
	certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	server := &http.Server{
		Addr: address, ReadHeaderTimeout: timeout, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }),
	}
	return server.ListenAndServeTLS("", "")
}

func try(target string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	kind, rest, _ := strings.Cut(target, ":")
	switch kind {
	case "tcp", "udp":
		c, err := (&net.Dialer{}).DialContext(ctx, kind, rest)
		if err != nil {
			return err
		}
		defer c.Close()
		if kind == "udp" {
			_, err = c.Write([]byte("probe"))
		}
		return err
	case "dns":
		_, err := net.DefaultResolver.LookupHost(ctx, rest)
		return err
	case "name":
		name, address, _ := strings.Cut(rest, "@")
		return get(ctx, "https://"+address, name)
	}
	return get(ctx, target, "")
}

// get requests a URL. The certificates are not verified: the test is about the network.
func get(ctx context.Context, url, serverName string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody) //nolint:gosec // the test chooses the URL
	if err != nil {
		return err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{ServerName: serverName, InsecureSkipVerify: true}} //nolint:gosec // see above
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

const (
	attackTimeout = 500 * time.Millisecond // limits a connection of an attack
	childVariable = "EGRESSPROBE_CHILD"    // set in the second process
)

// attack tries all targets at the same time, again and again. It prints the TCP targets that it reaches, and the number of each round.
func attack(targets []string) error {
	signal.Ignore(syscall.SIGTERM)
	if os.Getenv(childVariable) == "" {
		child := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:gosec,noctx // it outlives everything but SIGKILL
		child.Env, child.Stderr = append(os.Environ(), childVariable+"=1"), os.Stderr
		if err := child.Start(); err != nil {
			return err
		}
	}
	for round := 1; ; round++ {
		start := time.Now()
		var attempts sync.WaitGroup
		for _, target := range targets {
			attempts.Go(func() {
				if try(target, attackTimeout) == nil && strings.HasPrefix(target, "tcp:") {
					fmt.Println("reached", target)
				}
			})
		}
		attempts.Wait()
		fmt.Println("round", round)
		time.Sleep(time.Until(start.Add(attackTimeout))) // refused connections end at once
	}
}

// countInterval is the time between two readings of the counters of the kernel.
const countInterval = 100 * time.Millisecond

// counters of the kernel for packets from others. IPv4 packets are counted whatever they contain; of IPv6 those that the
// network itself does not need.
var counters = []string{"Ip:InReceives", "Tcp:InSegs", "Udp6InDatagrams", "Udp6NoPorts", "Icmp6InEchos"}

// count accepts connections at an address, and prints the addresses of this Pod. Whenever it has received more packets, it prints their number.
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
