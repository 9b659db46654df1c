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
	"strings"
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
			fmt.Println(report(target, try(target, timeout)))
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

func report(target string, err error) string {
	if err != nil {
		fmt.Println("#", target, err)
		return "did not reach " + target
	}
	return "reached " + target
}

func try(target string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	kind, rest, _ := strings.Cut(target, ":")
	switch kind {
	case "tcp":
		c, err := (&net.Dialer{}).DialContext(ctx, kind, rest)
		if err != nil {
			return err
		}
		return c.Close()
	case "udp":
		c, err := (&net.Dialer{}).DialContext(ctx, kind, rest)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("probe"))
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
