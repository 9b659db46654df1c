package jobreport

import (
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestAFailureThatDiffersOnlyInNumbersIsNoChange(t *testing.T) {
	for name, row := range map[string]struct {
		first, second Failure
		want          WriteReason
	}{
		"other port": {
			Failure{"ListFailed", "read tcp 10.0.0.2:51234->10.0.0.1:443: read: connection reset by peer"},
			Failure{"ListFailed", "read tcp 10.0.0.2:40022->10.0.0.1:443: read: connection reset by peer"},
			WriteUnchanged,
		},
		"other time": {
			Failure{"ListFailed", "certificate has expired: current time 2026-03-01T12:00:00Z is after 2026-02-28T00:00:00Z"},
			Failure{"ListFailed", "certificate has expired: current time 2026-03-01T12:05:00Z is after 2026-02-28T00:00:00Z"},
			WriteUnchanged,
		},
		"other stream": {
			Failure{"PartialList", `http2: server sent GOAWAY; LastStreamID=199, debug=""`},
			Failure{"PartialList", `http2: server sent GOAWAY; LastStreamID=7, debug=""`},
			WriteUnchanged,
		},
		"other cause": {
			Failure{"ListFailed", "connect: connection refused"},
			Failure{"ListFailed", "connect: no route to host"},
			WriteChanged,
		},
		"other reason": {
			Failure{"ListFailed", "connect: connection refused"},
			Failure{"PartialList", "connect: connection refused"},
			WriteChanged,
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := statusAfterFailure(v1alpha1.JobReportStatus{}, row.first, testTime)
			after := statusAfterFailure(before, row.second, testTime.Add(time.Minute))
			if got := compareStatus("a", &before, &after); got != row.want {
				t.Errorf("%s, want %s: %+v", got, row.want, after.Conditions)
			}
		})
	}
}
