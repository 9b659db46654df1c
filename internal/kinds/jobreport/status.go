package jobreport

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// MaxStatusBytes bounds the size of a status in JSON.
const MaxStatusBytes = 64 << 10

// maxFindingsBytes bounds the size of the findings and groups. The rest is for the conditions and the summary, which have a
// bounded size.
const maxFindingsBytes = MaxStatusBytes - 12<<10

// statusAfterScan returns the status without the conditions that do not depend on the scan. A failed scan keeps the previous
// findings: Jobs that were not listed may still exist.
func statusAfterScan(before *v1alpha1.JobReportStatus, o *Observation) v1alpha1.JobReportStatus {
	if o.Scan.Failure != nil {
		after := *before.DeepCopy()
		failure, outdated := o.Scan.Failure, "no scan has succeeded yet"
		if before.LastScanTime != nil {
			outdated = "the last scan failed; the findings are those of the last successful scan"
		}
		message := failure.stableMessage(before, v1alpha1.ConditionScanFailed)
		setCondition(&after, v1alpha1.ConditionScanFailed, metav1.ConditionTrue, failure.Reason, message, o.Now)
		setCondition(&after, v1alpha1.ConditionReportReady, metav1.ConditionFalse, v1alpha1.ReasonScanFailed, outdated, o.Now)
		return after
	}
	maxBytes := maxFindingsBytes
	if o.Unstored {
		maxBytes = math.MaxInt
	}
	after := newStatus(&o.Scan, maxBytes)
	after.Conditions = slices.Clone(before.Conditions)
	now := o.Scan.StartTime
	setCondition(&after, v1alpha1.ConditionReportReady, metav1.ConditionTrue, v1alpha1.ReasonScanned, scannedMessage, now)
	setCondition(&after, v1alpha1.ConditionScanFailed, metav1.ConditionFalse, v1alpha1.ReasonScanned, scannedMessage, now)
	truncated, reason, message := metav1.ConditionTrue, v1alpha1.ReasonTooManyFindings,
		fmt.Sprintf("findings lists %d of %d Jobs that are not healthy", len(after.Findings), after.Summary.Suspicious+after.Summary.Zombie)
	switch {
	case len(after.Findings) < len(o.Scan.Jobs.TopEntries()): // not all findings fit that the report has to show
		reason = v1alpha1.ReasonTooBig
	case after.Omitted <= 0:
		truncated, reason, message = metav1.ConditionFalse, v1alpha1.ReasonAllFindings, "findings lists all Jobs that are not healthy"
	}
	setCondition(&after, v1alpha1.ConditionTruncated, truncated, reason, message, now)
	return after
}

// newStatus returns the results of a successful scan, without conditions.
func newStatus(scan *Scan, maxBytes int) v1alpha1.JobReportStatus {
	groups := scan.Jobs.statusGroups()
	status := v1alpha1.JobReportStatus{
		Summary:      scan.Jobs.summary(),
		Findings:     findingsThatFit(scan.Jobs.TopEntries(), maxBytes-len(encodeJSON(groups))),
		Groups:       groups,
		LastScanTime: new(metav1.NewTime(scan.StartTime.Truncate(time.Second))),
		ScanDuration: &metav1.Duration{Duration: scan.Duration.Round(time.Millisecond)},
	}
	status.Omitted = status.Summary.Suspicious + status.Summary.Zombie - int32(len(status.Findings)) //nolint:gosec // at most MaxFindings
	status.ContentHash = contentHash(&status)
	return status
}

// findingsThatFit returns the first entries that fit into the report, sorted by name.
func findingsThatFit(entries []Entry, maxBytes int) []v1alpha1.JobFinding {
	var fitting []v1alpha1.JobFinding
	size := len("[]")
	for _, entry := range entries {
		finding := findingOf(entry)
		if size += len(encodeJSON(finding)) + len(","); size > maxBytes {
			break
		}
		fitting = append(fitting, finding)
	}
	slices.SortFunc(fitting, func(a, b v1alpha1.JobFinding) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return fitting
}

func findingOf(entry Entry) v1alpha1.JobFinding {
	finding := v1alpha1.JobFinding{
		Name:     entry.Name,
		UID:      entry.UID,
		Category: v1alpha1.JobCategory(entry.Finding.Category),
		Severity: v1alpha1.JobSeverity(entry.Finding.Severity),
		Reason:   string(entry.Finding.Reason),
		Cause:    entry.Finding.Cause,
		Message:  entry.Finding.Message,
		Since:    timeOrNil(entry.Finding.Since),
		Next:     NextStep(entry.Finding.Reason),
	}
	if !entry.Owner.IsZero() {
		finding.Owner = &v1alpha1.JobOwner{Kind: entry.Owner.Kind, Name: entry.Owner.Name}
	}
	return finding
}

// contentHash hashes the result of a scan without its time and the conditions.
func contentHash(status *v1alpha1.JobReportStatus) string {
	sum := sha256.Sum256(encodeJSON(struct {
		Summary  v1alpha1.JobSummary
		Findings []v1alpha1.JobFinding
		Groups   []v1alpha1.JobFindingGroup
		Omitted  int32
	}{status.Summary, status.Findings, status.Groups, status.Omitted}))
	return hex.EncodeToString(sum[:16])
}

// encodeJSON encodes a type of the API, which cannot fail. Map keys are sorted.
func encodeJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", v, err))
	}
	return raw
}
