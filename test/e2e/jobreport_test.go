//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// shortThresholds sets thresholds of seconds for the operator, instead of hours and days.
var shortThresholds = []string{
	"YARDMASTER_REPORT_INTERVAL=2s",
	"YARDMASTER_REPORT_STUCK_TERMINATING_SUSPICIOUS_AFTER=1s", "YARDMASTER_REPORT_STUCK_TERMINATING_ZOMBIE_AFTER=5s",
	"YARDMASTER_REPORT_SUSPENDED_TOO_LONG_SUSPICIOUS_AFTER=1s", "YARDMASTER_REPORT_SUSPENDED_TOO_LONG_ZOMBIE_AFTER=5s",
	"YARDMASTER_REPORT_NO_READY_PODS_SUSPICIOUS_AFTER=5s", "YARDMASTER_REPORT_NO_READY_PODS_ZOMBIE_AFTER=15s",
	"YARDMASTER_REPORT_RUNNING_TOO_LONG_SUSPICIOUS_AFTER=5s", "YARDMASTER_REPORT_RUNNING_TOO_LONG_ZOMBIE_AFTER=1h",
	"YARDMASTER_REPORT_NO_ACTIVE_PODS_SUSPICIOUS_AFTER=5s", "YARDMASTER_REPORT_NO_ACTIVE_PODS_ZOMBIE_AFTER=15s",
	"YARDMASTER_REPORT_INTERIM_STUCK_SUSPICIOUS_AFTER=5s", "YARDMASTER_REPORT_INTERIM_STUCK_ZOMBIE_AFTER=15s",
	"YARDMASTER_REPORT_PAUSED_BY_PARALLELISM_SUSPICIOUS_AFTER=1s", "YARDMASTER_REPORT_EXTERNALLY_MANAGED_SUSPICIOUS_AFTER=1s",
}

// reportedFinding is what is compared of a finding.
type reportedFinding struct {
	finding, owner string
	hasMessage     bool
}

// wantedFindings returns the expected findings, by Job.
func wantedFindings() map[string]reportedFinding {
	want := map[string]reportedFinding{}
	for i := range jobFixtures {
		if f := &jobFixtures[i]; f.finding != "" {
			want[f.name] = reportedFinding{f.finding, f.owner, true}
		}
	}
	return want
}

// findingsByJob returns the findings of a report, by Job.
func findingsByJob(report *v1alpha1.JobReport) map[string]reportedFinding {
	fixtures := map[string]*jobFixture{}
	for i := range jobFixtures {
		fixtures[jobFixtures[i].name] = &jobFixtures[i]
	}
	got := map[string]reportedFinding{}
	for i := range report.Status.Findings {
		f := &report.Status.Findings[i]
		one := reportedFinding{finding: string(f.Category) + " " + f.Reason}
		if f.Owner != nil {
			one.owner = f.Owner.Kind + "/" + f.Owner.Name
		}
		if fixture := fixtures[f.Name]; fixture != nil {
			one.hasMessage = strings.Contains(f.Message, fixture.message)
		}
		got[f.Name] = one
	}
	return got
}

func testOperatorReportsStaleJobs(t *testing.T) {
	before := readJobSpecs(t)
	report := &v1alpha1.JobReport{}
	waitForFindings(t, func() map[string]reportedFinding {
		require.NoError(t, client.IgnoreNotFound(cluster.Get(t.Context(), client.ObjectKey{Namespace: reportedNamespace, Name: v1alpha1.JobReportName}, report)))
		return findingsByJob(report)
	})
	if s := &report.Status.Summary; int(s.Total) != len(jobFixtures) || s.Ignored != 2 {
		t.Errorf("the summary counts %d Jobs, of which %d are ignored, want %d and 2", s.Total, s.Ignored, len(jobFixtures))
	}
	require.Equal(t, before, readJobSpecs(t))
}

// waitForFindings waits until exactly the stale Jobs are found.
func waitForFindings(t *testing.T, findings func() map[string]reportedFinding) {
	t.Helper()
	diff := ""
	defer func() {
		if diff != "" {
			t.Logf("findings (-want +got):\n%s", diff)
		}
	}()
	poll.Until(t, "all stale Jobs and no others to be found", func() bool {
		diff = cmp.Diff(wantedFindings(), findings(), cmp.AllowUnexported(reportedFinding{}))
		return diff == ""
	})
}

// readJobSpecs returns the specs of the Jobs, by name.
func readJobSpecs(t *testing.T) map[string]batchv1.JobSpec {
	t.Helper()
	var jobs batchv1.JobList
	require.NoError(t, cluster.List(t.Context(), &jobs, client.InNamespace(reportedNamespace)))
	all := map[string]batchv1.JobSpec{}
	for i := range jobs.Items {
		all[jobs.Items[i].Name] = jobs.Items[i].Spec
	}
	return all
}

// The explanation has the verdict of the report, and names the causes that are in Pods and events. Its command works.
func testPluginExplainsStaleJobs(t *testing.T) {
	tried := sets.New[string]()
	for i := range jobFixtures {
		f := &jobFixtures[i]
		var explanation render.JobExplanation
		output := ""
		poll.Until(t, "the explanation of "+f.name, func() bool {
			output, _ = runPluginBinary(t, "report", "explain", f.name, "-n", reportedNamespace, "-o", "json")
			explanation = render.JobExplanation{}
			require.NoError(t, json.Unmarshal([]byte(output), &explanation))
			verdict := strings.TrimSpace(string(explanation.Category) + " " + string(explanation.Reason))
			if f.finding == "" {
				return verdict == "Healthy" || verdict == "Ignored"
			}
			hasCause := slices.ContainsFunc(explanation.Causes, func(cause render.JobCause) bool {
				return strings.Contains(fmt.Sprintf("%s: %d Pod %s", cause.Reason, cause.Pods, cause.Message), f.cause)
			})
			return verdict == f.finding && (f.cause == "" || hasCause)
		})
		words := strings.Fields(explanation.Command)
		// Of the commands that differ in names only, one is run.
		form := strings.Join(slices.DeleteFunc(slices.Clone(words), func(word string) bool { return strings.Contains(word, f.name) }), " ")
		if len(words) < 2 || !slices.Contains([]string{"get", "describe", "logs"}, words[1]) || tried.Has(form) {
			continue
		}
		tried.Insert(form)
		if out, err := newKubectlCommand(t.Context(), words[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: the command %q fails: %v: %s", f.name, explanation.Command, err, out)
		}
	}
}
