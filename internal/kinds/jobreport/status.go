package jobreport

import (
	"cmp"
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

// maxFindingsBytes bounds the size of the findings and groups. The rest is for the conditions, the summary, the thresholds and the
// next steps, which have a bounded size.
const maxFindingsBytes = MaxStatusBytes - 20<<10

// statusAfterScan returns the status without the conditions that do not depend on the scan. A failed scan keeps the previous
// findings: Jobs that were not listed may still exist.
func statusAfterScan(before *v1alpha1.JobReportStatus, o *Observation) v1alpha1.JobReportStatus {
	if o.Scan.Failure != nil {
		return *before.DeepCopy()
	}
	maxBytes := maxFindingsBytes
	if o.Unstored {
		maxBytes = math.MaxInt
	}
	after := newStatus(o, maxBytes)
	after.Conditions = slices.Clone(before.Conditions)
	now := o.Scan.StartTime
	unhealthy := int(after.Summary.Suspicious + after.Summary.Zombie)
	truncated, reason, message := metav1.ConditionTrue, v1alpha1.ReasonTooManyFindings,
		fmt.Sprintf("findings lists %d of %d Jobs that are not healthy", len(after.Findings), unhealthy)
	switch {
	case len(after.Findings) < len(o.Scan.Jobs.TopEntries()): // not all findings fit that the report has to show
		reason = v1alpha1.ReasonTooBig
	case len(after.Findings) == unhealthy:
		truncated, reason, message = metav1.ConditionFalse, v1alpha1.ReasonAllFindings, "findings lists all Jobs that are not healthy"
	}
	setCondition(&after, v1alpha1.ConditionTruncated, truncated, reason, message, now)
	return after
}

// newStatus returns the results of a successful scan, without conditions.
func newStatus(o *Observation, maxBytes int) v1alpha1.JobReportStatus {
	groups := o.Scan.Jobs.statusGroups()
	findings := findingsThatFit(o.Scan.Jobs.TopEntries(), maxBytes-len(encodeJSON(groups)))
	var nextSteps map[string]string
	for i := range findings {
		reason := findings[i].Reason
		if nextSteps == nil {
			nextSteps = map[string]string{}
		}
		if nextSteps[reason] == "" { // the first Job by name, so that the report changes little
			_, nextSteps[reason] = NextStep(Reason(reason), o.Report.Namespace, findings[i].Name)
		}
	}
	return v1alpha1.JobReportStatus{
		Summary:      o.Scan.Jobs.summary(),
		Findings:     findings,
		Groups:       groups,
		NextSteps:    nextSteps,
		Thresholds:   o.Scan.Thresholds.Changed(),
		LastScanTime: new(metav1.NewTime(o.Scan.StartTime.Truncate(time.Second))),
	}
}

// findingsThatFit returns the first entries that fit into the report, sorted by name.
func findingsThatFit(entries []Entry, maxBytes int) []v1alpha1.JobFinding {
	var fitting []v1alpha1.JobFinding
	size := len("[")
	for _, entry := range entries {
		finding := findingOf(entry)
		if size += len(encodeJSON(finding)) + len(","); size > maxBytes { // or the closing bracket
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
	return v1alpha1.JobFinding{
		Name:            entry.Name,
		UID:             entry.UID,
		JobFindingClass: findingClass(entry.Owner, entry.Finding.Category, entry.Finding.Severity, entry.Finding.Reason),
		Cause:           entry.Finding.Cause,
		Message:         entry.Finding.Message,
		Since:           timeOrNil(entry.Finding.Since),
	}
}

func findingClass(owner Owner, category Category, severity Severity, reason Reason) v1alpha1.JobFindingClass {
	class := v1alpha1.JobFindingClass{
		Category: v1alpha1.JobCategory(category),
		Severity: v1alpha1.JobSeverity(severity),
		Reason:   string(reason),
	}
	if !owner.IsZero() {
		class.Owner = &v1alpha1.JobOwner{Kind: owner.Kind, Name: owner.Name}
	}
	return class
}

// encodeJSON encodes a type of the API, which cannot fail. Map keys are sorted.
func encodeJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", v, err))
	}
	return raw
}
