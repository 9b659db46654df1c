package report

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// MaxStatusBytes is the most bytes of a status, in JSON.
const MaxStatusBytes = 64 << 10

// maxFindingsBytes is the most bytes of its findings: the rest is for conditions and counts,
// of which there are only so many.
const maxFindingsBytes = MaxStatusBytes - 6<<10

// StatusAfterScan is the status after a scan that has seen all Jobs.
func StatusAfterScan(before v1alpha1.JobReportStatus, tally *Aggregator, began time.Time, took time.Duration) v1alpha1.JobReportStatus {
	after := v1alpha1.JobReportStatus{
		Conditions:   slices.Clone(before.Conditions),
		Summary:      tally.summary(),
		LastScanTime: new(metav1.NewTime(began.Truncate(time.Second))),
		ScanDuration: &metav1.Duration{Duration: took.Round(time.Millisecond)},
	}
	rows := tally.TopEntries()
	after.Findings = findingsThatFit(rows)
	after.Omitted = after.Summary.Suspicious + after.Summary.Zombie - int32(len(after.Findings)) //nolint:gosec // at most MaxTop
	after.ContentHash = contentHash(&after)
	setSuccessConditions(&after, len(after.Findings) < len(rows), began)
	return after
}

func (t *Aggregator) summary() v1alpha1.JobSummary {
	summary := v1alpha1.JobSummary{
		Total:      t.total,
		Healthy:    t.category["Healthy"],
		Suspicious: t.category["Suspicious"],
		Zombie:     t.category["Zombie"],
	}
	for reason, count := range t.reason {
		if summary.ByReason == nil {
			summary.ByReason = make(map[string]int32, len(t.reason))
		}
		summary.ByReason[string(reason)] = count
	}
	return summary
}

// findingsThatFit are as many of the rows as there is room for, by name.
func findingsThatFit(rows []Entry) []v1alpha1.JobFinding {
	var fitting []v1alpha1.JobFinding
	size := len("[]")
	for _, row := range rows {
		one := findingOf(row)
		if size += len(encodeJSON(one)) + len(","); size > maxFindingsBytes {
			break
		}
		fitting = append(fitting, one)
	}
	slices.SortFunc(fitting, func(a, b v1alpha1.JobFinding) int {
		if order := strings.Compare(a.Name, b.Name); order != 0 {
			return order
		}
		return strings.Compare(string(a.UID), string(b.UID))
	})
	return fitting
}

func findingOf(row Entry) v1alpha1.JobFinding {
	one := v1alpha1.JobFinding{
		Name:     row.Name,
		UID:      row.UID,
		Category: v1alpha1.JobCategory(row.Finding.Category),
		Severity: v1alpha1.JobSeverity(row.Finding.Severity),
		Reason:   string(row.Finding.Reason),
		Cause:    row.Finding.Cause,
		Message:  row.Finding.Message,
	}
	if !row.Finding.Since.IsZero() {
		one.Since = new(metav1.NewTime(row.Finding.Since))
	}
	return one
}

// contentHash is a hash of what the scan found: not of when it was, nor of its conditions.
func contentHash(status *v1alpha1.JobReportStatus) string {
	sum := sha256.Sum256(encodeJSON(struct {
		Summary  v1alpha1.JobSummary
		Findings []v1alpha1.JobFinding
		Omitted  int32
	}{status.Summary, status.Findings, status.Omitted}))
	return hex.EncodeToString(sum[:16])
}

// encodeJSON is v in JSON, in which the keys of a map are sorted. Of the API's types there is
// none that has no JSON.
func encodeJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", v, err))
	}
	return raw
}
