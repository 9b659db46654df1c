package bounded

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestLocalAndDeniedAddressesAreRefusedInEachForm(t *testing.T) {
	d := NewDialer(Options{Deny: parsePrefixes("10.1.0.0/16", "fd12::/16")})
	for address, want := range map[string]bool{
		"127.0.0.1": true, "127.255.255.254": true, "::1": true, "0.0.0.0": true, "0.1.2.3": true, "::": true,
		"169.254.1.1": true, "169.254.169.254": true, "fe80::1": true, "fe80::1%eth0": true, "fd00:ec2::254": true,
		"100.100.100.200": true, "168.63.129.16": true, "224.0.0.1": true, "255.255.255.255": true, "ff02::1": true,
		"::ffff:127.0.0.1": true, "::ffff:169.254.169.254": true, "::127.0.0.1": true, "64:ff9b::127.0.0.1": true,
		"64:ff9b::a9fe:a9fe": true, "64:ff9b:1::7f00:1": true, "2002:7f00:1::": true, "::ffff:0:127.0.0.1": true,
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "64:ff9b::10.1.2.3": true, "fd12::1": true,
		"10.2.0.1": false, "192.168.1.1": false, "8.8.8.8": false, "2001:db8::1": false, "fd13::1": false, "64:ff9b::8.8.8.8": false,
	} {
		require.True(t, isDenied(netip.MustParseAddr(address), d.denied) == want, "%s is denied: %t", address, !want)
	}
}

func TestAnAddressIsRefusedBeforeAndAfterNameResolution(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	refused, allowed := NewDialer(Options{}).For("team"), NewDialer(Options{AllowLocal: true}).For("team")
	for _, host := range []string{"127.0.0.1", "localhost", "LOCALHOST.", "a.localhost", "", "0.0.0.0", "::1", "::ffff:127.0.0.1"} {
		conn, err := refused(t.Context(), "tcp", net.JoinHostPort(host, port))
		require.True(t, errors.Is(err, broker.ErrAddressDenied), "connecting to %q: %v, %v", host, conn, err)
	}
	conn, err := allowed(t.Context(), "tcp", net.JoinHostPort("localhost", port))
	require.NoError(t, err)
	_ = conn.Close()
}

// The check of the resolved address is the last step before the socket connects.
func TestANameThatResolvesToADeniedAddressIsRefused(t *testing.T) {
	d := NewDialer(Options{})
	for address, want := range map[string]error{
		"127.0.0.1:4222": errResolvedAddressDenied, "[fe80::1%eth0]:4222": errResolvedAddressDenied, ":4222": errResolvedAddressDenied, "10.0.0.1:4222": nil,
	} {
		err := d.checkResolved(context.Background(), "tcp", address, nil)
		require.True(t, errors.Is(err, want), "%s: %v", address, err)
	}
}

func TestTheAddressesOfThisHostAreRefused(t *testing.T) {
	d := NewDialer(Options{})
	for _, own := range ownAddresses() {
		require.True(t, isDenied(own.Addr(), d.denied), "%s is allowed", own)
	}
}
