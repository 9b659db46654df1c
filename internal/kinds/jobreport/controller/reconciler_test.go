package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

var testTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// listFailure returns why a page of a list is not answered, or nil.
type listFailure func(ctx context.Context, page int) error

// fakeCluster is an API server that serves Jobs in pages and fails as configured.
type fakeCluster struct {
	t          *testing.T
	reconciler *Reconciler
	clock      *testclock.FakeClock
	events     *events.FakeRecorder

	mu              sync.Mutex
	jobsByNamespace map[string][]batchv1.Job
	failures        map[string]listFailure
	writes          []string
	refusedWrites   map[string]error // by verb
}

func newFakeCluster(t *testing.T, namespaces ...string) *fakeCluster {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, rbacv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	cluster := &fakeCluster{
		t: t, clock: testclock.NewFakeClock(testTime), events: events.NewFakeRecorder(100),
		jobsByNamespace: map[string][]batchv1.Job{}, failures: map[string]listFailure{}, refusedWrites: map[string]error{},
	}
	c := interceptor.NewClient(
		fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.JobReport{}).Build(),
		interceptor.Funcs{List: cluster.listJobs, Create: cluster.createObject, SubResourceUpdate: cluster.updateStatus},
	)
	options := Options{Namespaces: namespaces, Interval: 5 * time.Minute, MaxFindings: 50, Thresholds: jobreport.DefaultThresholds()}
	cluster.reconciler = New(c, c, cluster.events, logr.Discard(), options)
	cluster.reconciler.clock = cluster.clock
	return cluster
}

func (f *fakeCluster) useTheClockOfTheBubble() { f.reconciler.clock = clock.RealClock{} }

func (f *fakeCluster) listJobs(ctx context.Context, _ client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
	requested := client.ListOptions{}
	requested.ApplyOptions(options)
	from, _ := strconv.Atoi(requested.Continue)
	if fail := f.failures[requested.Namespace]; fail != nil {
		if err := fail(ctx, from/int(requested.Limit)); err != nil {
			return err
		}
	}
	all := f.jobsByNamespace[requested.Namespace]
	to := min(from+int(requested.Limit), len(all))
	list, isJobs := into.(*batchv1.JobList)
	if !isJobs {
		return fmt.Errorf("unexpected list of %T", into)
	}
	list.Items = all[from:to]
	if to < len(all) {
		list.Continue = strconv.Itoa(to)
	}
	return ctx.Err()
}

func (f *fakeCluster) createObject(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
	if err := f.recordWrite("create", object); err != nil {
		return err
	}
	return c.Create(ctx, object, options...)
}

func (f *fakeCluster) updateStatus(ctx context.Context, c client.Client, subresource string, object client.Object, options ...client.SubResourceUpdateOption) error {
	if err := f.recordWrite("update", object); err != nil {
		return err
	}
	return c.SubResource(subresource).Update(ctx, object, options...)
}

func (f *fakeCluster) recordWrite(verb string, object client.Object) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes = append(f.writes, verb+" "+object.GetNamespace())
	return f.refusedWrites[verb]
}

func (f *fakeCluster) reconcileAll() []string {
	f.writes = nil
	f.reconciler.ReconcileAll(f.t.Context())
	return f.writes
}

func (f *fakeCluster) storedReport(namespace string) *v1alpha1.JobReport {
	f.t.Helper()
	report := &v1alpha1.JobReport{}
	require.NoError(f.t, f.reconciler.live.Get(f.t.Context(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.JobReportName}, report))
	return report
}

func wantMetric(t *testing.T, want float64, name string, labels ...string) {
	t.Helper()
	assert.Equal(t, fmt.Sprintf("%s of %v", name, labels), want, testenv.MetricValues(t, "yardmaster_jobreport_"+name)[strings.Join(labels, ",")])
}

// countMetric returns a function that checks by how much a metric has increased since then.
func countMetric(t *testing.T, name string, labels ...string) func(want float64) {
	t.Helper()
	before := testenv.MetricValues(t, "yardmaster_jobreport_"+name)[strings.Join(labels, ",")]
	return func(want float64) {
		t.Helper()
		wantMetric(t, before+want, name, labels...)
	}
}

// addJobs adds Jobs that were created the given duration before testTime.
func (f *fakeCluster) addJobs(namespace string, count int, age time.Duration) {
	for range count {
		job := batchv1.Job{}
		job.Name = fmt.Sprintf("job-%05d", len(f.jobsByNamespace[namespace]))
		job.UID = types.UID(namespace + job.Name)
		job.CreationTimestamp = metav1.NewTime(testTime.Add(-age))
		f.jobsByNamespace[namespace] = append(f.jobsByNamespace[namespace], job)
	}
}

func (f *fakeCluster) wantCondition(namespace, kind string, status metav1.ConditionStatus, reason string) {
	f.t.Helper()
	got := meta.FindStatusCondition(f.storedReport(namespace).Status.Conditions, kind)
	require.True(f.t, got != nil && got.Status == status && got.Reason == reason, "%s: condition %+v, want %s for %s", namespace, got, status, reason)
}

func (f *fakeCluster) wantScanned(namespace string) {
	f.t.Helper()
	f.wantCondition(namespace, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonScanned)
}

func (f *fakeCluster) wantScanFailed(namespace, reason string) {
	f.t.Helper()
	f.wantCondition(namespace, v1alpha1.ConditionReady, metav1.ConditionFalse, reason)
}

var (
	errForbidden         = apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "", errors.New("no RBAC policy matched"))
	errNamespaceNotFound = apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "a")
	errExpired           = apierrors.NewResourceExpired("the continue token is too old")
	errConnectionRefused = &url.Error{Op: "Get", URL: "https://10.0.0.1/jobs?continue=secret", Err: errors.New("connection refused")}
)

func failFromPage(from int, err error) listFailure {
	return func(_ context.Context, page int) error {
		if page >= from {
			return err
		}
		return nil
	}
}

func TestAScanWritesOneReportPerNamespace(t *testing.T) {
	cluster := newFakeCluster(t, "a", "b")
	cluster.addJobs("a", 2, 48*time.Hour)
	cluster.addJobs("a", 1, time.Hour)
	cluster.addJobs("a", 1, time.Second)
	cluster.reconcileAll()
	cluster.wantScanned("a")
	cluster.wantScanned("b")
	want := v1alpha1.JobSummary{Total: 4, Healthy: 1, Suspicious: 1, Zombie: 2, ByReason: map[string]int32{"NeverStarted": 3}}
	assert.Equal(t, "summary", want, cluster.storedReport("a").Status.Summary)
	assert.Equal(t, "summary of a namespace without Jobs", v1alpha1.JobSummary{}, cluster.storedReport("b").Status.Summary)
	wantMetric(t, 2, "findings", "Zombie", "a", "NeverStarted")
	wantMetric(t, 1, "findings", "Suspicious", "a", "NeverStarted")
	wantMetric(t, float64(testTime.Unix()), "last_success_timestamp_seconds", "a")
	wantMetric(t, float64(testTime.Add(-48*time.Hour).Unix()), "oldest_finding_timestamp_seconds", "Zombie", "a", "NeverStarted")
}

func TestAScanWithoutChangesWritesOnlyAHeartbeat(t *testing.T) {
	cluster := newFakeCluster(t, "a", "b")
	cluster.addJobs("a", 700, 48*time.Hour)
	cluster.clock.Step(time.Millisecond) // which a stored time does not have
	assert.Equal(t, "number of writes by the first scan", 4, len(cluster.reconcileAll()))
	cluster.clock.Step(5 * time.Minute)
	unchanged := countMetric(t, "writes_total", "unchanged")
	assert.Equal(t, "writes", []string(nil), cluster.reconcileAll())
	unchanged(2)
	cluster.clock.Step(66 * time.Minute)
	assert.Equal(t, "number of writes after an hour", 2, len(cluster.reconcileAll()))
	got := cluster.storedReport("a").Status.LastScanTime.UTC()
	require.True(t, got.Equal(testTime.Add(71*time.Minute)), "last scan at %s", got)
}

func TestAScanThatFailsKeepsTheLastGoodFindings(t *testing.T) {
	for name, row := range map[string]struct {
		fail listFailure
		want string
	}{
		"permission is missing":                {failFromPage(0, errForbidden), "Forbidden"},
		"permission is lost between two pages": {failFromPage(1, errForbidden), "Forbidden"},
		"a page times out":                     {failFromPage(1, fmt.Errorf("page: %w", context.DeadlineExceeded)), "Timeout"},
		"the API server reports a timeout":     {failFromPage(0, apierrors.NewTimeoutError("slow", 1)), "Timeout"},
		"the API server stops between pages":   {failFromPage(2, errConnectionRefused), "PartialList"},
		"the API server is unavailable":        {failFromPage(0, errConnectionRefused), "ListFailed"},
		"the list expires twice":               {failFromPage(1, errExpired), "Expired"},
		"the API server has an internal error": {failFromPage(0, apierrors.NewInternalError(errors.New("etcd"))), "ListFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newFakeCluster(t, "a", "b")
			cluster.addJobs("a", 1300, 48*time.Hour)
			cluster.addJobs("b", 3, 48*time.Hour)
			cluster.reconcileAll()
			good := cluster.storedReport("a").Status
			cluster.jobsByNamespace["a"] = cluster.jobsByNamespace["a"][:1250]
			cluster.addJobs("b", 1, 48*time.Hour)
			cluster.failures["a"] = row.fail
			cluster.clock.Step(5 * time.Minute)
			cluster.reconcileAll()
			cluster.wantScanFailed("a", row.want)
			kept := cluster.storedReport("a").Status
			message := meta.FindStatusCondition(kept.Conditions, v1alpha1.ConditionReady).Message
			require.True(t, !strings.Contains(message, "secret"), "the message contains the continue token: %s", message)
			kept.Conditions = good.Conditions
			assert.Equal(t, "the status without its conditions", good, kept)
			cluster.wantScanned("b")
			assert.Equal(t, "zombies of the other namespace", int32(4), cluster.storedReport("b").Status.Summary.Zombie)
			assert.Equal(t, "writes after a second failure", []string(nil), cluster.reconcileAll())
			cluster.failures["a"] = nil
			cluster.reconcileAll()
			cluster.wantScanned("a")
			assert.Equal(t, "zombies after the recovery", int32(1250), cluster.storedReport("a").Status.Summary.Zombie)
			assert.Equal(t, "events for Truncated, ScanFailed and ScanRecovered", 3, len(cluster.events.Events))
		})
	}
}

func TestAnExpiredListIsRestarted(t *testing.T) {
	cluster := newFakeCluster(t, "a")
	cluster.addJobs("a", 1200, 48*time.Hour)
	failures := 1
	cluster.failures["a"] = func(_ context.Context, page int) error {
		if page == 1 && failures > 0 {
			failures--
			return errExpired
		}
		return nil
	}
	cluster.reconcileAll()
	cluster.wantScanned("a")
	assert.Equal(t, "Jobs, each once", int32(1200), cluster.storedReport("a").Status.Summary.Total)
}

func TestAFailedScanIsCountedByItsOwnReason(t *testing.T) {
	reports := schema.GroupResource{Resource: "jobreports"}
	missingKind := apierrors.NewGenericServerResponse(404, "POST", reports, "jobs", "404 page not found", 0, true)
	internalError := apierrors.NewInternalError(errors.New("etcd"))
	for name, row := range map[string]struct {
		list, create error
		reason       string
		want         float64
	}{
		"the namespace does not exist":               {nil, errNamespaceNotFound, "NamespaceNotFound", 1},
		"the namespace is terminating":               {nil, errNamespaceTerminating(), "NamespaceTerminating", 1},
		"the kind does not exist":                    {nil, missingKind, "NamespaceNotFound", 0},
		"a failure that cannot be recorded":          {internalError, errForbidden, "ListFailed", 1},
		"and not the reason why it was not recorded": {internalError, errForbidden, "Forbidden", 0},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newFakeCluster(t, "a")
			cluster.failures["a"], cluster.refusedWrites["create"] = failFromPage(0, row.list), row.create
			counted := countMetric(t, "scan_errors_total", "a", row.reason)
			assert.Equal(t, "writes", []string{"create a"}, cluster.reconcileAll())
			counted(row.want)
		})
	}
}

// Deleting a namespace also deletes the Role in it, so that the operator sees only a missing permission.
func TestMetricsOmitTheJobsOfAnInaccessibleNamespace(t *testing.T) {
	for name, refusal := range map[string]error{
		"the namespace was deleted":    errNamespaceNotFound,
		"the namespace is terminating": errNamespaceTerminating(),
		"no permission for JobReports": errForbidden,
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newFakeCluster(t, "a")
			cluster.addJobs("a", 2, 48*time.Hour)
			cluster.reconcileAll()
			wantMetric(t, 2, "jobs", "Zombie", "a")
			cluster.failures["a"] = failFromPage(0, errForbidden)
			cluster.clock.Step(5 * time.Minute)
			cluster.reconcileAll()
			wantMetric(t, 2, "jobs", "Zombie", "a")             // as the report lists
			cluster.failures["a"] = failFromPage(0, errExpired) // another reason, so that a write is due
			cluster.refusedWrites["update"] = refusal
			cluster.reconcileAll()
			wantMetric(t, 0, "jobs", "Zombie", "a")
			wantMetric(t, 0, "findings", "Zombie", "a", "NeverStarted")
			wantMetric(t, float64(testTime.Unix()), "last_success_timestamp_seconds", "a") // it is kept
		})
	}
}

func errNamespaceTerminating() error {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "jobreports"}, "jobs", errors.New("the namespace is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// A starting API server answers requests before it has read all Roles.
func TestAReportIsRecordedOnceTheAPIServerIsAvailable(t *testing.T) {
	for name, row := range map[string]struct {
		hasReport bool
		failsAt   int
		verb      string
		refusal   error
		want      string
	}{
		"the first report, which the API server does not answer": {false, 0, "create", errConnectionRefused, "ListFailed"},
		"a later report, which it forbids":                       {true, 1, "update", errForbidden, "PartialList"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := newFakeCluster(t, "a")
				cluster.addJobs("a", 600, 48*time.Hour)
				if row.hasReport {
					cluster.reconcileAll()
				}
				cluster.useTheClockOfTheBubble()
				cluster.failures["a"] = failFromPage(row.failsAt, errConnectionRefused)
				cluster.refusedWrites[row.verb] = row.refusal
				time.AfterFunc(3*time.Second, func() {
					cluster.mu.Lock()
					defer cluster.mu.Unlock()
					delete(cluster.refusedWrites, row.verb)
				})
				counted := countMetric(t, "scan_errors_total", "a", row.want)
				cluster.reconcileAll()
				cluster.wantScanFailed("a", row.want)
				counted(1)
			})
		})
	}
}

func TestAFailedScanIsTriedAgainWithinAMinuteAndThenLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t, "a")
		cluster.useTheClockOfTheBubble()
		start := time.Now()
		var scans []time.Duration
		cluster.failures["a"] = func(context.Context, int) error {
			scans = append(scans, time.Since(start))
			if len(scans) == 7 {
				return nil
			}
			return errForbidden
		}
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Minute)
		defer stop()
		require.NoError(t, cluster.reconciler.Start(ctx))
		want := []time.Duration{
			0, 15 * time.Second, 45 * time.Second, 105 * time.Second, 225 * time.Second, 465 * time.Second, // 15 s, then twice as long
			765 * time.Second,                      // never longer than the interval of 5 minutes
			1065 * time.Second, 1080 * time.Second, // after the success the interval, then 15 s again
		}
		assert.Equal(t, "scans", want, scans[:min(len(scans), len(want))])
	})
}

func TestTheRoleBindingOfTheScanOwnsTheReport(t *testing.T) {
	cluster := newFakeCluster(t, "a", "b")
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: roleBindingName, UID: "binding"}}
	require.NoError(t, cluster.reconciler.client.Create(t.Context(), binding))
	cluster.reconcileAll()
	for namespace, want := range map[string][]metav1.OwnerReference{
		"a": {{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding", Name: roleBindingName, UID: "binding"}},
		"b": nil,
	} {
		assert.Equal(t, "owners of the report of "+namespace, want, cluster.storedReport(namespace).OwnerReferences)
	}
}

func TestAnEditedReportIsRepairedByTheNextScan(t *testing.T) {
	for name, edit := range map[string]func(*v1alpha1.JobReportStatus){
		"a message":      func(s *v1alpha1.JobReportStatus) { s.Findings[0].Message = "fine" },
		"the next steps": func(s *v1alpha1.JobReportStatus) { s.NextSteps = map[string]string{"NeverStarted": "rm -rf /"} },
		"the thresholds": func(s *v1alpha1.JobReportStatus) { s.Thresholds = map[string]string{"x": "1h"} },
		"a future time of the scan": func(s *v1alpha1.JobReportStatus) {
			s.LastScanTime = new(metav1.NewTime(testTime.Add(1000 * time.Hour)))
		},
		"no time of the scan":         func(s *v1alpha1.JobReportStatus) { s.LastScanTime = nil },
		"a condition's message":       func(s *v1alpha1.JobReportStatus) { s.Conditions[1].Message = "edited" },
		"a condition of another type": func(s *v1alpha1.JobReportStatus) { s.Conditions = append(s.Conditions, metav1.Condition{Type: "Fine"}) },
		"everything":                  func(s *v1alpha1.JobReportStatus) { *s = v1alpha1.JobReportStatus{} },
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newFakeCluster(t, "a")
			cluster.addJobs("a", 2, 48*time.Hour)
			cluster.reconcileAll()
			want := cluster.storedReport("a").Status
			report := cluster.storedReport("a")
			edit(&report.Status)
			require.NoError(t, cluster.reconciler.client.Status().Update(t.Context(), report))
			cluster.reconcileAll()
			assert.Equal(t, "the report differs", want, cluster.storedReport("a").Status)
		})
	}
}

// Five namespaces hang and four are scanned concurrently, which takes two intervals.
func TestScansAreBoundedAndThoseOfANamespaceNeverOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t, "a", "b", "c", "d", "e")
		cluster.useTheClockOfTheBubble()
		cluster.reconciler.options.Interval = time.Minute
		var mu sync.Mutex
		scans, running, total, peak, totalPeak := 0, map[string]int{}, 0, 0, 0
		count := func(namespace string, started int) {
			mu.Lock()
			defer mu.Unlock()
			scans += max(started, 0)
			running[namespace] += started
			total += started
			peak, totalPeak = max(peak, running[namespace]), max(totalPeak, total)
		}
		for _, namespace := range cluster.reconciler.options.Namespaces {
			cluster.failures[namespace] = func(ctx context.Context, _ int) error {
				count(namespace, 1)
				<-ctx.Done()
				count(namespace, -1)
				return ctx.Err()
			}
		}
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute+time.Second)
		defer stop()
		require.NoError(t, cluster.reconciler.Start(ctx))
		require.True(t, peak == 1 && totalPeak == concurrentNamespaces, "%d concurrent scans of a namespace, %d of all", peak, totalPeak)
		require.True(t, scans >= 25 && scans <= 30, "%d scans in ten minutes, want five every two minutes", scans)
	})
}

func TestAFailureIsLoggedOnceUntilItChanges(t *testing.T) {
	cluster := newFakeCluster(t, "a")
	var lines []string
	cluster.reconciler.log = funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	scan := func(err error) {
		cluster.refusedWrites["create"] = err
		cluster.reconcileAll()
	}
	for range 3 {
		scan(errNamespaceNotFound)
	}
	require.True(t, len(lines) == 1 && strings.Contains(lines[0], "NamespaceNotFound"), "three failures for one reason log %q", lines)
	scan(errNamespaceTerminating())
	scan(nil)
	scan(nil)
	require.True(t, len(lines) == 3 && strings.Contains(lines[1], "NamespaceTerminating") && strings.Contains(lines[2], "Scan succeeded again"),
		"another failure, and two successes, log %q", lines[1:])
	for _, line := range lines {
		require.True(t, !strings.Contains(line, "stacktrace") && !strings.Contains(line, ".go:"), "the log has a stack trace: %s", line)
	}
}

// The tests in test/integration cover the answers of a real API server.
func TestAFailedExportDoesNotAffectTheJobReport(t *testing.T) {
	for name, row := range map[string]struct {
		get  func(context.Context) error
		want string
	}{
		"reading the Report times out":    {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "Timeout"},
		"the connection breaks":           {func(context.Context) error { return errConnectionRefused }, v1alpha1.ReasonWriteFailed},
		"its version cannot be converted": {func(context.Context) error { return apierrors.NewInternalError(errConnectionRefused) }, v1alpha1.ReasonWriteFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := newFakeCluster(t, "a", "b")
				cluster.addJobs("a", 2, 48*time.Hour)
				cluster.reconciler.options.OpenReports = true
				cluster.useTheClockOfTheBubble()
				cluster.reconciler.live = interceptor.NewClient(cluster.reconciler.client.(client.WithWatch), interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
						if _, isReport := into.(*unstructured.Unstructured); isReport {
							return row.get(ctx)
						}
						return c.Get(ctx, key, into, options...)
					},
				})
				scanned, failed := countMetric(t, "writes_total", "changed"), countMetric(t, "openreports_errors_total", row.want)
				startTime := time.Now()
				cluster.reconcileAll()
				elapsed := time.Since(startTime)
				require.True(t, elapsed <= maxExportDuration, "the export took %s, want at most %s", elapsed, maxExportDuration)
				for _, namespace := range []string{"a", "b"} {
					cluster.wantScanned(namespace)
					cluster.wantCondition(namespace, v1alpha1.ConditionOpenReportsReady, metav1.ConditionFalse, row.want)
				}
				scanned(2)
				failed(2)
				assert.Equal(t, "writes after a second failure", []string(nil), cluster.reconcileAll())
			})
		})
	}
}

const alertsDirectory = "../../../../config/components/jobreport-alerts"

func TestAlertsFireAsPromtoolEvaluatesThem(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	require.True(t, err == nil, "%v: run hack/prerequisites promtool=prometheus", err)
	content, err := os.ReadFile(filepath.Join(alertsDirectory, "rules.yaml"))
	require.NoError(t, err)
	file := struct {
		Spec json.RawMessage `json:"spec"` // of a PrometheusRule, which is a rule file of Prometheus
	}{}
	require.NoError(t, yaml.Unmarshal(content, &file))
	tests, err := os.ReadFile(filepath.Join(alertsDirectory, "rules_test.yaml"))
	require.NoError(t, err)
	directory := t.TempDir()
	for name, content := range map[string][]byte{"rules.yaml": file.Spec, "rules_test.yaml": tests} {
		require.NoError(t, os.WriteFile(filepath.Join(directory, name), content, 0o600))
	}
	for _, arguments := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		command := exec.CommandContext(t.Context(), promtool, arguments...)
		command.Dir = directory
		output, err := command.CombinedOutput()
		require.True(t, err == nil, "promtool %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
}

func TestEachAlertHasARunbookSection(t *testing.T) {
	documentation, err := os.ReadFile("../../../../docs/jobreport.md")
	require.NoError(t, err)
	headings := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^##+ (.*)$`).FindAllStringSubmatch(string(documentation), -1) {
		headings[strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-")] = true
	}
	rules, err := os.ReadFile(filepath.Join(alertsDirectory, "rules.yaml"))
	require.NoError(t, err)
	for _, rule := range strings.Split(string(rules), "- alert: ")[1:] {
		_, section, found := strings.Cut(rule, "/docs/jobreport.md#")
		require.True(t, found && headings[strings.Fields(section)[0]], "the runbook is no section: %s", rule)
	}
}

func TestCountersStartAtZero(t *testing.T) {
	initializeMetrics(Options{Namespaces: []string{"fresh"}, OpenReports: true})
	for name, label := range map[string]string{
		"yardmaster_jobreport_scan_errors_total": "fresh,Timeout", "yardmaster_jobreport_writes_total": "failed", "yardmaster_jobreport_openreports_writes_total": "failed", "yardmaster_jobreport_openreports_errors_total": "Forbidden",
	} {
		_, exists := testenv.MetricValues(t, name)[label]
		require.True(t, exists, "%s has no value for %s", name, label)
	}
}
