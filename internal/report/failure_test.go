package report

import (
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestAFailureThatSaysTheSameIsNoChange(t *testing.T) {
	for name, row := range map[string]struct {
		first, second ScanFailure
		want          WriteDecision
	}{
		"another port": {
			ScanFailure{"ListFailed", "read tcp 10.0.0.2:51234->10.0.0.1:443: read: connection reset by peer"},
			ScanFailure{"ListFailed", "read tcp 10.0.0.2:40022->10.0.0.1:443: read: connection reset by peer"},
			DecisionUnchanged,
		},
		"another time": {
			ScanFailure{"ListFailed", "certificate has expired: current time 2026-03-01T12:00:00Z is after 2026-02-28T00:00:00Z"},
			ScanFailure{"ListFailed", "certificate has expired: current time 2026-03-01T12:05:00Z is after 2026-02-28T00:00:00Z"},
			DecisionUnchanged,
		},
		"another stream": {
			ScanFailure{"PartialList", `http2: server sent GOAWAY; LastStreamID=199, debug=""`},
			ScanFailure{"PartialList", `http2: server sent GOAWAY; LastStreamID=7, debug=""`},
			DecisionUnchanged,
		},
		"another cause": {
			ScanFailure{"ListFailed", "connect: connection refused"},
			ScanFailure{"ListFailed", "connect: no route to host"},
			DecisionChanged,
		},
		"another reason": {
			ScanFailure{"ListFailed", "connect: connection refused"},
			ScanFailure{"PartialList", "connect: connection refused"},
			DecisionChanged,
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := StatusAfterFailure(v1alpha1.JobReportStatus{}, row.first, testTime)
			after := StatusAfterFailure(before, row.second, testTime.Add(time.Minute))
			if got := CompareStatus("a", &before, &after); got != row.want {
				t.Errorf("%s, want %s: %+v", got, row.want, after.Conditions)
			}
		})
	}
}
