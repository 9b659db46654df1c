package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"net/netip"
	"os"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	policies "sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/network"
)

const here, there, ignoring = "10.244.0.2", "10.244.0.3", "10.244.0.4"

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// tcp is the first packet of a connection.
func tcp(from, to string) []byte {
	packet := make([]byte, 40)
	packet[0], packet[9], packet[32] = 0x45, 6, 0x50
	copy(packet[12:], netip.MustParseAddr(from).AsSlice())
	copy(packet[16:], netip.MustParseAddr(to).AsSlice())
	binary.BigEndian.PutUint16(packet[22:], 80)
	return packet
}

// knows are the labels of the namespaces of Pods, by address.
type knows map[string]map[string]string

func (k knows) GetPodInfoByIP(ip string) (*policies.PodInfo, bool) {
	labels, found := k[ip]
	return &policies.PodInfo{Namespace: &policies.Namespace{Labels: labels}}, found
}

type answers struct {
	allowed bool
	err     error
}

func (a answers) EvaluatePacket(context.Context, *network.Packet) (bool, error) {
	return a.allowed, a.err
}

func TestAPacketPassesOnlyIfAPolicyAllowsIt(t *testing.T) {
	for title, row := range map[string]struct {
		packet []byte
		answer answers
		want   bool
	}{
		"allowed":                      {tcp(here, there), answers{allowed: true}, true},
		"not allowed":                  {tcp(here, there), answers{}, false},
		"the decision fails":           {tcp(here, there), answers{allowed: true, err: errors.New("unknown")}, false},
		"from a Pod that nobody knows": {tcp(there, here), answers{allowed: true}, false},
		"not allowed, from a namespace that ignores policies": {tcp(ignoring, there), answers{}, true},
		"not allowed, to a namespace that ignores policies":   {tcp(here, ignoring), answers{}, false},
		"to an address that nobody knows":                     {tcp(here, "192.0.2.1"), answers{allowed: true}, true},
		"no packet":                                           {[]byte("none"), answers{allowed: true}, false},
	} {
		t.Run(title, func(t *testing.T) {
			j := &judge{known: knows{here: nil, ignoring: {ignoreLabel: "true"}}, engine: row.answer}
			if got := j.passes(t.Context(), row.packet); got != row.want {
				t.Errorf("passes: %t, want %t", got, row.want)
			}
		})
	}
}

func TestAddressBelongsToTheLastPodThatReceivedIt(t *testing.T) {
	r := &runtimePods{pods: map[string]*api.PodSandbox{}}
	first := &api.PodSandbox{Id: "1", Namespace: "a", Name: "first", Ips: []string{here}}
	again := &api.PodSandbox{Id: "2", Namespace: "a", Name: "first", Ips: []string{there}}
	second := &api.PodSandbox{Id: "3", Namespace: "a", Name: "second", Ips: []string{here}}
	if _, err := r.Synchronize(t.Context(), []*api.PodSandbox{first}, nil); err != nil {
		t.Fatal(err)
	}
	want := func(address, want string) {
		t.Helper()
		if got, found := r.LookupPod(address); found != (want != "") || found && got != want {
			t.Errorf("%s is of %q, %t; want %q", address, got, found, want)
		}
	}
	want(here, "a/first")
	want(there, "")
	for _, pod := range []*api.PodSandbox{again, second} {
		if err := r.RunPodSandbox(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.RemovePodSandbox(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	want(here, "a/second")
	want(there, "a/first")
}

func TestClusterDNSIsTreatedAsAPod(t *testing.T) {
	known, err := newPods(informers.NewSharedInformerFactory(fake.NewClientset(), 0), &runtimePods{})
	if err != nil {
		t.Fatal(err)
	}
	dns, found := withDNS{known, "10.211.0.2"}.GetPodInfoByIP("10.211.0.2")
	if !found || dns.Namespace.Name != "kube-system" || dns.Labels["k8s-app"] != "kube-dns" {
		t.Errorf("found %t, %v", found, dns)
	}
	if _, found := (withDNS{known, "10.211.0.2"}).GetPodInfoByIP(here); found {
		t.Error("a Pod is known that there is not")
	}
}
