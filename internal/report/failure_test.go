package report

import (
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestAFailureThatSaysTheSameIsNoChange(t *testing.T) {
	for name, row := range map[string]struct {
		first, second Failure
		want          Decision
	}{
		"another port": {
			Failure{"ListFailed", "read tcp 10.0.0.2:51234->10.0.0.1:443: read: connection reset by peer"},
			Failure{"ListFailed", "read tcp 10.0.0.2:40022->10.0.0.1:443: read: connection reset by peer"},
			Unchanged,
		},
		"another time": {
			Failure{"ListFailed", "certificate has expired: current time 2026-03-01T12:00:00Z is after 2026-02-28T00:00:00Z"},
			Failure{"ListFailed", "certificate has expired: current time 2026-03-01T12:05:00Z is after 2026-02-28T00:00:00Z"},
			Unchanged,
		},
		"another stream": {
			Failure{"PartialList", `http2: server sent GOAWAY; LastStreamID=199, debug=""`},
			Failure{"PartialList", `http2: server sent GOAWAY; LastStreamID=7, debug=""`},
			Unchanged,
		},
		"another cause": {
			Failure{"ListFailed", "connect: connection refused"},
			Failure{"ListFailed", "connect: no route to host"},
			Changed,
		},
		"another reason": {
			Failure{"ListFailed", "connect: connection refused"},
			Failure{"PartialList", "connect: connection refused"},
			Changed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := Failed(v1alpha1.JobReportStatus{}, row.first, noon)
			after := Failed(before, row.second, noon.Add(time.Minute))
			if got := Decide("a", &before, &after); got != row.want {
				t.Errorf("%s, want %s: %+v", got, row.want, after.Conditions)
			}
		})
	}
}
