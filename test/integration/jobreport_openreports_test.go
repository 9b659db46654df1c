package integration

import (
	"context"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	jobreportcontroller "github.com/yardmaster/yardmaster/internal/kinds/jobreport/controller"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// exportTest is a namespace with all permissions for reports, and one without the Role for
// OpenReports.
type exportTest struct {
	namespace, bare string
	options         jobreportcontroller.Options
	recorder        *events.FakeRecorder
	writes          *atomic.Int64
	scanner         *jobreportcontroller.Reconciler
}

func newExportTest(t *testing.T) *exportTest {
	t.Helper()
	m := &exportTest{namespace: namespace(t), bare: namespace(t)}
	for _, ns := range []string{m.namespace, m.bare} {
		abandonedJobs(t, ns, 3)
	}
	newReporterConfig(t, m.namespace, m.bare)
	grantRole(t, m.namespace, "jobreport-openreports")
	m.options = scanOptions(m.namespace, m.bare)
	return m
}

// turn switches OpenReports on or off, as a restart with another flag does.
func (m *exportTest) turn(t *testing.T, on bool) {
	t.Helper()
	writes, as := &atomic.Int64{}, asOperator()
	as.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if isWrite(request) {
				writes.Add(1)
			}
			return next.RoundTrip(request)
		})
	})
	m.options.OpenReports = on
	m.recorder = events.NewFakeRecorder(100)
	m.writes, m.scanner = writes, newScanner(t, as, m.recorder, m.options)
}

// scan scans, and returns the events since the last call.
func (m *exportTest) scan(t *testing.T) []string {
	t.Helper()
	m.writes.Store(0)
	m.scanner.ReconcileAll(t.Context())
	var events []string
	for len(m.recorder.Events) > 0 {
		events = append(events, <-m.recorder.Events)
	}
	return events
}

// openReport returns the namespace's Report, or nil.
func openReport(t *testing.T, ns string) *openreportsv1alpha1.Report {
	t.Helper()
	raw := &openreportsv1alpha1.Report{}
	err := openReportsClient(t).Get(t.Context(), client.ObjectKey{Namespace: ns, Name: jobreport.ReportName}, raw)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// openReportsClient returns a client whose scheme contains the kind Report.
func openReportsClient(t *testing.T) client.Client {
	t.Helper()
	if err := openreportsv1alpha1.Install(cluster.Scheme()); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// openReportsReady returns the condition OpenReportsReady of the JobReport, or an empty one.
func openReportsReady(t *testing.T, ns string) metav1.Condition {
	t.Helper()
	condition := meta.FindStatusCondition(reportOf(t, ns).Status.Conditions, v1alpha1.ConditionOpenReportsReady)
	if condition == nil {
		return metav1.Condition{}
	}
	return *condition
}

// wantMirrored checks the condition of a namespace's JobReport, and that the JobReport is correct.
func wantMirrored(t *testing.T, ns string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	if got := openReportsReady(t, ns); got.Status != status || got.Reason != reason {
		t.Errorf("%s: condition %+v, want %s %s", ns, got, status, reason)
	}
	if conditions := reportOf(t, ns).Status.Conditions; !meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady) {
		t.Errorf("%s: %+v", ns, conditions)
	}
	if got := reportOf(t, ns).Status; got.Summary.Total != 3 || len(got.Findings) != 3 {
		t.Errorf("%s: the JobReport has %d Jobs and %d findings, want 3", ns, got.Summary.Total, len(got.Findings))
	}
}

// wantUnwritten checks that a scan writes nothing.
func (m *exportTest) wantUnwritten(t *testing.T) {
	t.Helper()
	before := reportOf(t, m.namespace)
	if events := m.scan(t); events != nil {
		t.Errorf("events %q", events)
	}
	if writes := m.writes.Load(); writes != 0 {
		t.Errorf("%d writes were attempted", writes)
	}
	if got := reportOf(t, m.namespace); got.ResourceVersion != before.ResourceVersion {
		t.Errorf("the JobReport was written:\n%s", cmp.Diff(before, got))
	}
}

// openReportsCRD returns the CustomResourceDefinition that OpenReports ships.
func openReportsCRD(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openreports/reports-api")
	list.Dir = repositoryRoot
	directory, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := readYAML(filepath.Join(strings.TrimSpace(string(directory)), "config", "crd", "openreports.io_reports.yaml"), crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

func installOpenReports(t *testing.T) {
	t.Helper()
	if err := cluster.Create(t.Context(), openReportsCRD(t)); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "the kind to be served", func() bool {
		return openReportsClient(t).List(t.Context(), &openreportsv1alpha1.ReportList{}) == nil
	})
}

func removeOpenReports(t *testing.T) {
	t.Helper()
	crd := openReportsCRD(t)
	if err := client.IgnoreNotFound(cluster.Delete(t.Context(), crd)); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "the kind to be removed", func() bool {
		err := cluster.Get(t.Context(), client.ObjectKeyFromObject(crd), crd.DeepCopy())
		return apierrors.IsNotFound(err) && openReportsClient(t).List(t.Context(), &openreportsv1alpha1.ReportList{}) != nil
	})
}

// withoutOpenReports removes the kind now and at the end of the test.
func withoutOpenReports(t *testing.T) {
	t.Helper()
	removeOpenReports(t)
	crd := openReportsCRD(t)
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(cluster.Delete(context.Background(), crd)); err != nil {
			t.Error(err)
		}
	})
}

// Each part continues in the state in which the previous one ended.
func TestOpenReports(t *testing.T) {
	m := newExportTest(t)
	withoutOpenReports(t)
	for _, part := range []struct {
		title string
		run   func(*testing.T, *exportTest)
	}{
		{"a missing CRD does not affect the JobReport", areNotInstalled},
		{"a Report of another owner is not changed", areLeftAlone},
		{"the Report is written once nothing prevents that", areWritten},
		{"an edited Report is corrected", testChangedReportIsRestored},
		{"the Report is kept, and the condition removed, when OpenReports is disabled", areForgotten},
		{"the removal of the CRD is reported", areTakenAway},
	} {
		if !t.Run(part.title, func(t *testing.T) { part.run(t, m) }) {
			return
		}
	}
}

func areNotInstalled(t *testing.T, m *exportTest) {
	m.turn(t, false)
	m.scan(t)
	wantMirrored(t, m.namespace, "", "")
	m.turn(t, true)
	missing := testenv.MetricValue(t, "yardmaster_jobreport_openreports_errors_total", v1alpha1.ReasonCRDMissing)
	events := m.scan(t)
	if len(events) != 2 || !strings.Contains(events[0], "Warning OpenReportsFailed CRDMissing: ") {
		t.Errorf("events %q, want one of each namespace", events)
	}
	wantMirrored(t, m.namespace, metav1.ConditionFalse, v1alpha1.ReasonCRDMissing)
	wantMirrored(t, m.bare, metav1.ConditionFalse, v1alpha1.ReasonCRDMissing)
	m.wantUnwritten(t)
	if got := testenv.MetricValue(t, "yardmaster_jobreport_openreports_errors_total", v1alpha1.ReasonCRDMissing) - missing; got != 4 {
		t.Errorf("counted %v times, want 4: two scans of two namespaces", got)
	}
}

func areWritten(t *testing.T, m *exportTest) {
	if events := m.scan(t); !strings.Contains(strings.Join(events, "\n"), "Normal OpenReportsRecovered") {
		t.Errorf("events %q", events)
	}
	wantMirrored(t, m.namespace, metav1.ConditionTrue, v1alpha1.ReasonWritten)
	wantMirrored(t, m.bare, metav1.ConditionFalse, v1alpha1.ReasonForbidden)
	if got := openReport(t, m.bare); got != nil {
		t.Error("a Report was written without permission")
	}
	got, jobReport := openReport(t, m.namespace), reportOf(t, m.namespace)
	if diff := cmp.Diff(jobreport.FromJobReport(jobReport).Results, got.Results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if want := (openreportsv1alpha1.ReportSummary{Warn: 3}); got.Summary != want || got.Source != "yardmaster" {
		t.Errorf("%+v of %s, want %+v", got.Summary, got.Source, want)
	}
	if diff := cmp.Diff(&corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: m.namespace}, got.Scope); diff != "" {
		t.Errorf("scope (-want +got):\n%s", diff)
	}
	if len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != jobReport.UID {
		t.Errorf("the owners are %+v", got.OwnerReferences)
	}
	if len(got.ManagedFields) != 1 || got.ManagedFields[0].Manager != "yardmaster-jobreport" {
		t.Errorf("its fields are managed by %+v", got.ManagedFields)
	}
}

func testChangedReportIsRestored(t *testing.T, m *exportTest) {
	m.scan(t)
	right := openReport(t, m.namespace)
	edited := right.DeepCopy()
	edited.Summary.Warn, edited.Results = 0, nil
	if err := openReportsClient(t).Update(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	m.scan(t)
	if got := openReport(t, m.namespace); !jobreport.HasSameContent(got, jobreport.FromJobReport(reportOf(t, m.namespace))) {
		t.Errorf("the Report was not corrected:\n%s", cmp.Diff(right, got))
	}
	unchanged := testenv.MetricValue(t, "yardmaster_jobreport_openreports_writes_total", "unchanged")
	m.wantUnwritten(t)
	if got := testenv.MetricValue(t, "yardmaster_jobreport_openreports_writes_total", "unchanged") - unchanged; got != 1 {
		t.Errorf("counted as unchanged %v times, want once", got)
	}
}

func areLeftAlone(t *testing.T, m *exportTest) {
	installOpenReports(t)
	others := &openreportsv1alpha1.Report{Source: "another-tool"}
	others.Namespace, others.Name = m.namespace, jobreport.ReportName
	if err := openReportsClient(t).Create(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	m.scan(t)
	wantMirrored(t, m.namespace, metav1.ConditionFalse, v1alpha1.ReasonNameTaken)
	if got := openReport(t, m.namespace); got.ResourceVersion != others.ResourceVersion {
		t.Errorf("it was overwritten:\n%s", cmp.Diff(others, got))
	}
	if err := openReportsClient(t).Delete(t.Context(), others); err != nil {
		t.Fatal(err)
	}
}

func areForgotten(t *testing.T, m *exportTest) {
	left := openReport(t, m.namespace)
	m.turn(t, false)
	m.scan(t)
	wantMirrored(t, m.namespace, "", "")
	if got := openReport(t, m.namespace); got == nil || got.ResourceVersion != left.ResourceVersion {
		t.Error("it was changed")
	}
	m.wantUnwritten(t)
}

func areTakenAway(t *testing.T, m *exportTest) {
	m.turn(t, true)
	m.scan(t)
	wantMirrored(t, m.namespace, metav1.ConditionTrue, v1alpha1.ReasonWritten)
	removeOpenReports(t)
	m.scan(t)
	wantMirrored(t, m.namespace, metav1.ConditionFalse, v1alpha1.ReasonCRDMissing)
	m.wantUnwritten(t)
}
