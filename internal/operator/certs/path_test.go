package certs

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
)

// start is the time at which the first segment is created.
var start = time.Unix(1_800_000_000, 0)

func TestPathSegmentIsReplacedEveryHour(t *testing.T) {
	first := pathSegments(nil).rotate(start, "FIRST")
	if len(first) != 1 || len(validation.IsDNS1123Subdomain(first[0])) > 0 {
		t.Fatalf("%q is not a segment that the API server accepts in a path", first)
	}
	if kept := first.rotate(start.Add(59*time.Minute), "X"); !cmp.Equal(first, kept) {
		t.Errorf("after 59 minutes: %q, want %q", kept, first)
	}
	second := first.rotate(start.Add(time.Hour), "second")
	if len(second) != 2 || second[1] != first[0] {
		t.Fatalf("after an hour: %q, want a new segment before %q", second, first)
	}
	third := second.rotate(start.Add(2*time.Hour), "third")
	if len(third) != 2 || third[1] != second[0] {
		t.Errorf("after two hours: %q, want a new segment before %q", third, second[0])
	}
}

func TestNewPathSegmentIsUsedOnceEveryReplicaAcceptsIt(t *testing.T) {
	first := pathSegments(nil).rotate(start, "first")
	second := first.rotate(start.Add(time.Hour), "second")
	for title, row := range map[string]struct {
		segments      pathSegments
		at            time.Duration
		want          string
		wantChangesIn time.Duration
	}{
		"the first segment is used at once":     {first, 0, first[0], time.Hour},
		"a new segment is not used yet":         {second, time.Hour + 10*time.Second, first[0], 20 * time.Second},
		"a segment that every replica has read": {second, time.Hour + 30*time.Second, second[0], time.Hour - 30*time.Second},
		"an overdue rotation happens soon":      {first, 3 * time.Hour, first[0], time.Second},
	} {
		t.Run(title, func(t *testing.T) {
			got, changesIn := row.segments.inUse(start.Add(row.at))
			if got != row.want || changesIn != row.wantChangesIn {
				t.Errorf("%s for %v, want %s for %v", got, changesIn, row.want, row.wantChangesIn)
			}
		})
	}
}

func TestOnlySegmentsOfTheOperatorAreRead(t *testing.T) {
	written := pathSegments(nil).rotate(start, "first").rotate(start.Add(time.Hour), "second")
	if diff := cmp.Diff(written, parsePathSegments([]byte(written.String()))); diff != "" {
		t.Errorf("segments (-written +read):\n%s", diff)
	}
	for _, text := range []string{"", " ", "/", "-", "../x", "Ü-x"} {
		if read := parsePathSegments([]byte(text)); len(read) > 0 {
			t.Errorf("%q is read as %q", text, read)
		}
	}
}
