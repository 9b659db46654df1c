package integration

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	jobreportcontroller "github.com/yardmaster/yardmaster/internal/kinds/jobreport/controller"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// crowdSize is the number of zombies. They fill ten pages.
const crowdSize = 5000

// absentController is a value of managedBy for which no controller exists.
const absentController = "example.com/no-controller"

// abandonedJobs creates Jobs that no controller manages, so that nothing changes them.
func abandonedJobs(t *testing.T, ns string, count int) {
	t.Helper()
	createJobs(t, ns, count, new(absentController))
}

// zombieCrowd is a namespace with many zombies, another one with a single Job, and a scanner of both.
type zombieCrowd struct {
	namespace, other string
	options          jobreportcontroller.Options
	wire             *requestInterceptor
	scanner          *jobreportcontroller.Reconciler
}

func newCrowd(t *testing.T) *zombieCrowd {
	t.Helper()
	c := &zombieCrowd{namespace: namespace(t), other: namespace(t)}
	abandonedJobs(t, c.namespace, crowdSize)
	abandonedJobs(t, c.other, 1)
	newReporterConfig(t, c.namespace, c.other)
	c.options = scanOptions(c.namespace, c.other)
	c.options.Thresholds[jobreport.ReasonExternallyManaged].Zombie = time.Nanosecond
	return c
}

// connect creates a new scanner from the options.
func (c *zombieCrowd) connect(t *testing.T) {
	t.Helper()
	as, w := interceptRequests(asOperator())
	c.wire, c.scanner = w, newScannerWithOptions(t, as, events.NewFakeRecorder(100), c.options)
}

// scanTop scans with this maximum number of findings.
func (c *zombieCrowd) scanTop(t *testing.T, top int) {
	t.Helper()
	c.options.MaxFindings = top
	c.connect(t)
	c.scanner.ReconcileAll(t.Context())
}

// wantBounded checks the counts and the size of the stored report.
func (c *zombieCrowd) wantBounded(t *testing.T, zombies int, reason string) {
	t.Helper()
	raw := &unstructured.Unstructured{}
	raw.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("JobReport"))
	if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: v1alpha1.JobReportName}, raw); err != nil {
		t.Fatal(err)
	}
	bytes, err := json.Marshal(raw.Object["status"])
	if err != nil {
		t.Fatal(err)
	}
	if len(bytes) > 64<<10 {
		t.Errorf("the status has %d bytes, want at most 64 KiB", len(bytes))
	}
	status := reportOf(t, c.namespace).Status
	want := v1alpha1.JobSummary{
		Total: int32(zombies), Zombie: int32(zombies), ByReason: map[string]int32{"ExternallyManaged": int32(zombies)},
	}
	if diff := cmp.Diff(want, status.Summary); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	truncated := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionTruncated)
	if truncated == nil || truncated.Status != metav1.ConditionTrue || truncated.Reason != reason {
		t.Errorf("condition %+v, want %s", truncated, reason)
	}
	t.Logf("%d findings, %d bytes", len(status.Findings), len(bytes))
}

func wantReady(t *testing.T, ns string) {
	t.Helper()
	conditions := reportOf(t, ns).Status.Conditions
	if !meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady) {
		t.Errorf("%s: %+v", ns, conditions)
	}
}

// Each part continues in the state in which the previous one ended.
func TestJobReportOfFiveThousandZombies(t *testing.T) {
	c := newCrowd(t)
	for _, part := range []struct {
		title string
		run   func(*testing.T, *zombieCrowd)
	}{
		{"has 50 findings and counts all Jobs", hasFiftyFindings},
		{"has as many of 500 findings as fit into 64 KiB", hasAsManyFindingsAsFit},
		{"is created from one page at a time", readsOnePageAtATime},
		{"is not written while nothing changes", isNotWrittenAgain},
		{"changes by one finding when one Job is deleted", changesByOneFinding},
	} {
		if !t.Run(part.title, func(t *testing.T) { part.run(t, c) }) {
			return
		}
	}
}

func hasFiftyFindings(t *testing.T, c *zombieCrowd) {
	c.scanTop(t, 50)
	c.wantBounded(t, crowdSize, v1alpha1.ReasonTooManyFindings)
	if got := len(reportOf(t, c.namespace).Status.Findings); got != 50 {
		t.Errorf("%d findings, want 50", got)
	}
}

func hasAsManyFindingsAsFit(t *testing.T, c *zombieCrowd) {
	c.scanTop(t, 500)
	c.wantBounded(t, crowdSize, v1alpha1.ReasonTooBig)
	if got := len(reportOf(t, c.namespace).Status.Findings); got <= 50 || got >= 500 {
		t.Errorf("%d findings, want more than 50 and fewer than 500", got)
	}
}

func readsOnePageAtATime(t *testing.T, c *zombieCrowd) {
	c.wire.reset()
	c.scanner.ReconcileAll(t.Context())
	want := map[string]int{c.namespace: 1, c.other: 1}
	if diff := cmp.Diff(want, c.wire.most); diff != "" {
		t.Errorf("pages at once (-want +got):\n%s", diff)
	}
	if got := c.wire.pages[c.namespace]; got != crowdSize/500 {
		t.Errorf("%d pages, want %d", got, crowdSize/500)
	}
}

func isNotWrittenAgain(t *testing.T, c *zombieCrowd) {
	first, unchanged := reportOf(t, c.namespace), testenv.MetricValue(t, "yardmaster_jobreport_writes_total", "unchanged")
	c.wire.reset()
	c.scanner.ReconcileAll(t.Context())
	c.scanner.ReconcileAll(t.Context())
	if got := reportOf(t, c.namespace); got.ResourceVersion != first.ResourceVersion {
		t.Errorf("it was written although nothing changed:\n%s", cmp.Diff(first, got))
	}
	if c.wire.writes != 0 {
		t.Errorf("%d writes were attempted", c.wire.writes)
	}
	if got := testenv.MetricValue(t, "yardmaster_jobreport_writes_total", "unchanged") - unchanged; got != 4 {
		t.Errorf("%v reports counted as unchanged, want 4", got)
	}
}

func changesByOneFinding(t *testing.T, c *zombieCrowd) {
	before, changed := reportOf(t, c.namespace), testenv.MetricValue(t, "yardmaster_jobreport_writes_total", "changed")
	deleted := &batchv1.Job{}
	deleted.Namespace, deleted.Name = c.namespace, before.Status.Findings[0].Name
	if err := cluster.Delete(t.Context(), deleted, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	c.wire.reset()
	c.scanner.ReconcileAll(t.Context())
	if got := testenv.MetricValue(t, "yardmaster_jobreport_writes_total", "changed") - changed; got != 1 || c.wire.writes != 1 {
		t.Errorf("%v reports changed in %d writes, want one each", got, c.wire.writes)
	}
	c.wantBounded(t, crowdSize-1, v1alpha1.ReasonTooBig)
	was, is := findingsByName(before), findingsByName(reportOf(t, c.namespace))
	for name, finding := range is {
		if old, found := was[name]; found && !cmp.Equal(old, finding) {
			t.Errorf("%s differs:\n%s", name, cmp.Diff(old, finding))
		}
		delete(was, name)
	}
	if _, found := was[deleted.Name]; len(was) != 1 || !found {
		t.Errorf("%d findings were removed, want only %s", len(was), deleted.Name)
	}
}

func findingsByName(report *v1alpha1.JobReport) map[string]v1alpha1.JobFinding {
	all := map[string]v1alpha1.JobFinding{}
	for _, finding := range report.Status.Findings {
		all[finding.Name] = finding
	}
	return all
}
