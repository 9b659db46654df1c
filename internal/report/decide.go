package report

import (
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// HeartbeatInterval is how often a report is written though nothing has changed, give or take a
// tenth, so that its lastScanTime says that somebody still looks.
const HeartbeatInterval = time.Hour

// WriteDecision is whether a status is worth a write, and why.
type WriteDecision string

// The decisions.
const (
	// DecisionUnchanged: no write.
	DecisionUnchanged WriteDecision = "unchanged"
	// DecisionChanged: the scan found something else than the one before, or went otherwise.
	DecisionChanged WriteDecision = "changed"
	// DecisionHeartbeat: nothing has changed for so long that a sign of life is due.
	DecisionHeartbeat WriteDecision = "heartbeat"
)

// CompareStatus compares the status that is stored in the namespace with the next.
func CompareStatus(namespace string, before, after *v1alpha1.JobReportStatus) WriteDecision {
	if before.ContentHash != after.ContentHash || !equality.Semantic.DeepEqual(before.Conditions, after.Conditions) {
		return DecisionChanged
	}
	if before.LastScanTime == nil || after.LastScanTime == nil {
		return DecisionUnchanged
	}
	if after.LastScanTime.Sub(before.LastScanTime.Time) >= heartbeatInterval(namespace) {
		return DecisionHeartbeat
	}
	return DecisionUnchanged
}

// heartbeatInterval is that of the namespace: always the same, and not that of its neighbours, so
// that not all reports are written at once.
func heartbeatInterval(namespace string) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(namespace)) // never fails
	const spread = HeartbeatInterval / 5
	return HeartbeatInterval - spread/2 + time.Duration(hash.Sum32()%1000)*spread/1000
}
