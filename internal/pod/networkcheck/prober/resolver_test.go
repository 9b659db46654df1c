package prober

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheResolverUsesTheLastAddressesWhileLookupsFail(t *testing.T) {
	now, lookups := time.Unix(0, 0), 0
	answer, failure := []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("::ffff:10.0.0.1"), netip.MustParseAddr("10.0.0.1")}, error(nil)
	r := NewResolver("service")
	r.now = func() time.Time { return now }
	r.lookup = func(context.Context, string, string) ([]netip.Addr, error) { lookups++; return answer, failure }
	for _, step := range []struct {
		name        string
		after       time.Duration
		failure     error
		want        []netip.Addr
		wantLookups int
	}{
		{"a failure before the first answer", 0, errors.New("no server"), nil, 1},
		{"at once after that", time.Second, nil, nil, 1},
		{"the first answer", failureAge, nil, []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, 2},
		{"while it is new", addressesAge / 2, nil, []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, 2},
		{"a failure later", addressesAge, errors.New("no server"), []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, 3},
	} {
		now, failure = now.Add(step.after), step.failure
		if diff := cmp.Diff(step.want, r.Addresses(t.Context()), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || lookups != step.wantLookups {
			t.Errorf("%s: %d lookups, want %d; addresses (-want +got):\n%s", step.name, lookups, step.wantLookups, diff)
		}
	}
}
