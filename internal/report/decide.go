package report

import (
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Heartbeat is how often a report is written though nothing has changed, give or take a
// tenth, so that its lastScanTime says that somebody still looks.
const Heartbeat = time.Hour

// Decision is whether a status is worth a write, and why.
type Decision string

// The decisions.
const (
	// Unchanged: no write.
	Unchanged Decision = "unchanged"
	// Changed: the scan found something else than the one before, or went otherwise.
	Changed Decision = "changed"
	// Beat: nothing has changed for so long that a sign of life is due.
	Beat Decision = "heartbeat"
)

// Decide compares the status that is stored in the namespace with the next.
func Decide(namespace string, before, after *v1alpha1.JobReportStatus) Decision {
	if before.ContentHash != after.ContentHash || !equality.Semantic.DeepEqual(before.Conditions, after.Conditions) {
		return Changed
	}
	if before.LastScanTime == nil || after.LastScanTime == nil {
		return Unchanged
	}
	if after.LastScanTime.Sub(before.LastScanTime.Time) >= heartbeat(namespace) {
		return Beat
	}
	return Unchanged
}

// heartbeat is that of the namespace: always the same, and not that of its neighbours, so
// that not all reports are written at once.
func heartbeat(namespace string) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(namespace)) // never fails
	const spread = Heartbeat / 5
	return Heartbeat - spread/2 + time.Duration(hash.Sum32()%1000)*spread/1000
}
