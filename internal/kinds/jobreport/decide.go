package jobreport

import (
	"bytes"
	"hash/fnv"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// Observation is the input of Decide.
type Observation struct {
	// Report as stored; without a resourceVersion if it does not exist.
	Report *v1alpha1.JobReport
	// Scan is the result of listing the namespace's Jobs.
	Scan Scan
	// ExportEnabled reports whether the findings are also written as an OpenReports Report.
	ExportEnabled bool
	// Unstored is true for a report that is only printed, so that no bound applies to its size.
	Unstored bool
	// Export is the result of writing the Report; nil before it was attempted.
	Export *ExportResult
	Now    time.Time
}

// Scan is the result of listing and classifying all Jobs of a namespace.
type Scan struct {
	// Failure is nil if all Jobs were listed.
	Failure *Failure
	// Jobs of a successful scan.
	Jobs *Aggregator
	// Thresholds by which the Jobs were classified.
	Thresholds Thresholds
	StartTime  time.Time
	Duration   time.Duration
}

// ExportResult is the result of writing an OpenReports Report.
type ExportResult struct {
	// Failure is nil if the Report has the findings.
	Failure *Failure
}

// Decision is the output of Decide.
type Decision struct {
	Status v1alpha1.JobReportStatus
	// Write says whether to write the status, and why.
	Write WriteReason
	// Export is true if the OpenReports Report must be compared with the status.
	Export bool
	// Events to emit after the status is stored.
	Events []decision.Event
}

// Decide returns the next status of a JobReport.
func Decide(o Observation) Decision {
	before := &o.Report.Status
	after := statusAfterScan(before, &o)
	after.Conditions = slices.DeleteFunc(after.Conditions, func(c metav1.Condition) bool { return !slices.Contains(conditionTypes, c.Type) })
	setExportCondition(&after, before, &o)
	// The API server creates a JobReport with the generation 1, and it has no spec that would change it.
	after.ObservedGeneration = max(o.Report.Generation, 1)
	setSummaryConditions(&after, before, &o)
	return Decision{
		Status: after,
		Write:  compareStatus(o.Report.Namespace, before, &after),
		Export: o.ExportEnabled && o.Export == nil && after.LastScanTime != nil,
		Events: transitionEvents(before, &after),
	}
}

// conditionTypes are the conditions of a JobReport. Others were added by somebody else.
var conditionTypes = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionTruncated, v1alpha1.ConditionOpenReportsReady,
}

// HeartbeatInterval is the time after which an unchanged status is written again, plus or minus a tenth, so that lastScanTime
// proves that the namespace is still scanned.
const HeartbeatInterval = time.Hour

// WriteReason is whether a status needs a write, and why. Its values label a metric.
type WriteReason string

// The reasons for a write.
const (
	// WriteUnchanged means that no write is necessary.
	WriteUnchanged WriteReason = "unchanged"
	// WriteChanged means that the findings or the conditions changed.
	WriteChanged WriteReason = "changed"
	// WriteHeartbeat means that nothing changed during the HeartbeatInterval.
	WriteHeartbeat WriteReason = "heartbeat"
)

func compareStatus(namespace string, before, after *v1alpha1.JobReportStatus) WriteReason {
	withoutScanTime := func(status v1alpha1.JobReportStatus) []byte {
		status.LastScanTime = nil
		return encodeJSON(status)
	}
	if !bytes.Equal(withoutScanTime(*before), withoutScanTime(*after)) {
		return WriteChanged
	}
	// Without a recorded time, or with one in the future, the report was edited or the clock was set.
	scanned, recorded := after.LastScanTime, before.LastScanTime
	if scanned != nil && (recorded == nil || recorded.After(scanned.Time) || scanned.Sub(recorded.Time) >= heartbeatInterval(namespace)) {
		return WriteHeartbeat
	}
	return WriteUnchanged
}

// heartbeatInterval differs between namespaces, so that not all reports are written at the same time.
func heartbeatInterval(namespace string) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(namespace)) // never fails
	const spread = HeartbeatInterval / 5
	return HeartbeatInterval - spread/2 + time.Duration(hash.Sum32()%1000)*spread/1000
}
