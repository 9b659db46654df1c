package integration

import (
	"context"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// While one of three namespaces cannot be scanned, its report has the reason and keeps its findings,
// and the other reports are correct. Later it recovers.
func TestFailureInOneNamespaceDoesNotAffectOtherJobReports(t *testing.T) {
	for name, row := range map[string]struct {
		meddle func(*http.Request) error
		want   string
	}{
		"the API server does not answer": {func(request *http.Request) error {
			<-request.Context().Done()
			return request.Context().Err()
		}, v1alpha1.ReasonTimeout},
		"the connection breaks": {func(*http.Request) error { return errFault }, v1alpha1.ReasonListFailed},
	} {
		t.Run(name, func(t *testing.T) {
			first, middle, last := namespace(t), namespace(t), namespace(t)
			for _, ns := range []string{first, middle, last} {
				abandonedJobs(t, ns, 3)
			}
			as, w := interceptRequests(newReporterConfig(t, first, middle, last))
			options := scanOptions(first, middle, last)
			options.Thresholds[jobreport.ReasonExternallyManaged].Suspicious = time.Nanosecond
			options.Interval = 2 * time.Second // also limits the duration of a scan
			recorder := events.NewFakeRecorder(100)
			s := newScannerWithOptions(t, as, recorder, options)
			s.ReconcileAll(t.Context())
			good := reportOf(t, middle)

			w.reset(func(request *http.Request, ns string) error {
				if ns == middle {
					return row.meddle(request)
				}
				return nil
			})
			for _, ns := range []string{first, middle, last} {
				abandonOneMore(t, ns)
			}
			began := time.Now()
			s.ReconcileAll(t.Context())
			assertWithin(t, "all namespaces are scanned", 10*time.Second, began)
			wantFindingsKept(t, good, row.want)
			for _, ns := range []string{first, last} {
				wantReady(t, ns)
				if got := reportOf(t, ns).Status.Summary.Suspicious; got != 4 {
					t.Errorf("%s: %d Jobs, want 4", ns, got)
				}
			}

			failing := reportOf(t, middle)
			s.ReconcileAll(t.Context())
			if got := reportOf(t, middle); got.ResourceVersion != failing.ResourceVersion {
				t.Error("the report was written again for the same failure")
			}

			w.reset(nil)
			s.ReconcileAll(t.Context())
			wantReady(t, middle)
			if got := reportOf(t, middle).Status.Summary.Suspicious; got != 4 {
				t.Errorf("%d Jobs after the recovery, want 4", got)
			}
			if got := len(recorder.Events); got != 2 {
				t.Errorf("%d events, want one for the failure and one for the recovery", got)
			}
		})
	}
}

func abandonOneMore(t *testing.T, ns string) {
	t.Helper()
	job := newSuspendedJob(ns)
	job.GenerateName, job.Spec.ManagedBy = "another-", new(absentController)
	if err := cluster.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
}

func TestJobReportOfANamespaceThatIsCreatedLater(t *testing.T) {
	late, other := "test-late-"+rand.String(5), namespace(t)
	s := newScanner(t, newReporterConfig(t, other), late, other)
	forbidden := testenv.MetricValue(t, "yardmaster_jobreport_scan_errors_total", late, v1alpha1.ReasonForbidden)
	s.ReconcileAll(t.Context())
	wantReady(t, other)
	if got := testenv.MetricValue(t, "yardmaster_jobreport_scan_errors_total", late, v1alpha1.ReasonForbidden) - forbidden; got != 1 {
		t.Errorf("counted %v times, want once", got)
	}

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: late}}
	if err := cluster.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Delete(context.Background(), ns); err != nil {
			t.Error(err)
		}
	})
	grantRole(t, late, "controllers/jobreport")
	poll.Until(t, "the Role to take effect", func() bool {
		s.ReconcileAll(t.Context())
		report := &v1alpha1.JobReport{}
		err := cluster.Get(t.Context(), client.ObjectKey{Namespace: late, Name: v1alpha1.JobReportName}, report)
		// The API server learns of the Role and of its binding at different times.
		return err == nil && meta.IsStatusConditionTrue(report.Status.Conditions, v1alpha1.ConditionReady)
	})
	wantReady(t, late)
}

// The scanner has permissions in all namespaces, so that the API server returns the actual reason
// instead of Forbidden.
func TestMissingOrTerminatingNamespaceIsReported(t *testing.T) {
	for title, row := range map[string]struct {
		namespace func(*testing.T) string
		want      string
	}{
		"the namespace does not exist": {func(*testing.T) string { return "test-does-not-exist" }, v1alpha1.ReasonNamespaceNotFound},
		"the namespace is terminating": {newTerminatingNamespace, v1alpha1.ReasonNamespaceTerminating},
	} {
		t.Run(title, func(t *testing.T) {
			other := namespace(t)
			broken := row.namespace(t)
			s := newScanner(t, config, broken, other)
			before := testenv.MetricValue(t, "yardmaster_jobreport_scan_errors_total", broken, row.want)
			s.ReconcileAll(t.Context())
			if got := testenv.MetricValue(t, "yardmaster_jobreport_scan_errors_total", broken, row.want) - before; got != 1 {
				t.Errorf("counted %v times, want once", got)
			}
			wantReady(t, other)
		})
	}
}

// newTerminatingNamespace creates a namespace that is terminating until the end of the test.
func newTerminatingNamespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := cluster.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	blocker := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns.Name, Name: "blocker", Finalizers: []string{"test.yardmaster.dev/blocker"},
	}}
	if err := cluster.Create(t.Context(), blocker); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeFinalizers(t, blocker) })
	return ns.Name
}

// removeFinalizers removes an object's finalizers.
func removeFinalizers(t *testing.T, object client.Object) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := cluster.Patch(context.Background(), object, patch); err != nil {
		t.Error(err)
	}
}

// Deleting a namespace deletes its Role, so the scanner cannot read that the namespace was deleted.
func TestJobsOfADeletedNamespaceAreNoLongerCounted(t *testing.T) {
	ns := namespace(t)
	suspendedJobs(t, ns, 2)
	s := newScanner(t, newReporterConfig(t, ns), ns)
	s.ReconcileAll(t.Context())
	if got := testenv.MetricValue(t, "yardmaster_jobreport_jobs", "Suspicious", ns); got != 2 {
		t.Fatalf("%v Jobs counted, want 2", got)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "yardmaster-jobreport"}}
	if err := cluster.Delete(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "the Jobs to be removed from the metric", func() bool {
		s.ReconcileAll(t.Context())
		return testenv.MetricValue(t, "yardmaster_jobreport_jobs", "Suspicious", ns) == 0
	})
	if got := testenv.MetricValue(t, "yardmaster_jobreport_last_success_timestamp_seconds", ns); got == 0 {
		t.Error("the time of the last successful scan was lost")
	}
}
