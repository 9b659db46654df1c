package jobreport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
	"github.com/yardmaster/yardmaster/internal/zombie"
)

var testTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fakeCluster is an API server that serves Jobs in pages, and fails when it is told to.
type fakeCluster struct {
	t       *testing.T
	reconciler *Reconciler
	clock   *testclock.FakeClock
	events  *events.FakeRecorder

	mu     sync.Mutex
	jobsByNamespace   map[string][]batchv1.Job // by namespace
	failures   map[string]func(page int) error
	lists  []client.ListOptions
	writes []string
	refusedWrites  map[string]error // by verb: writes of reports that are refused
}

func newFakeCluster(t *testing.T, namespaces ...string) *fakeCluster {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	y := &fakeCluster{
		t: t, clock: testclock.NewFakeClock(testTime), events: events.NewFakeRecorder(100),
		jobsByNamespace: map[string][]batchv1.Job{}, failures: map[string]func(int) error{}, refusedWrites: map[string]error{},
	}
	c := interceptor.NewClient(
		fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.JobReport{}).Build(),
		interceptor.Funcs{List: y.listJobs, Create: y.createObject, SubResourcePatch: y.patchStatus},
	)
	options := Options{Namespaces: namespaces, Interval: 5 * time.Minute, MaxFindings: 50, Thresholds: zombie.DefaultThresholds()}
	y.reconciler = New(c, c, y.events, logr.Discard(), options)
	y.reconciler.clock = y.clock
	return y
}

func (y *fakeCluster) listJobs(ctx context.Context, _ client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	asked := client.ListOptions{}
	asked.ApplyOptions(options)
	y.lists = append(y.lists, asked)
	from, _ := strconv.Atoi(asked.Continue)
	if fail := y.failures[asked.Namespace]; fail != nil {
		if err := fail(from / int(asked.Limit)); err != nil {
			return err
		}
	}
	all := y.jobsByNamespace[asked.Namespace]
	to := min(from+int(asked.Limit), len(all))
	list, isJobs := into.(*batchv1.JobList)
	if !isJobs {
		return fmt.Errorf("it lists %T", into)
	}
	list.Items = all[from:to]
	if to < len(all) {
		list.Continue = strconv.Itoa(to)
	}
	return ctx.Err()
}

func (y *fakeCluster) createObject(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
	if err := y.recordWrite("create", object); err != nil {
		return err
	}
	return c.Create(ctx, object, options...)
}

func (y *fakeCluster) patchStatus(ctx context.Context, c client.Client, subresource string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	if err := y.recordWrite("patch", object); err != nil {
		return err
	}
	return c.SubResource(subresource).Patch(ctx, object, patch, options...)
}

func (y *fakeCluster) recordWrite(verb string, object client.Object) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.writes = append(y.writes, verb+" "+object.GetNamespace())
	return y.refusedWrites[verb]
}

// reconcileAll scans once, and returns what was written for it.
func (y *fakeCluster) reconcileAll() []string {
	y.writes, y.lists = nil, nil
	y.reconciler.ReconcileAll(y.t.Context())
	return y.writes
}

func (y *fakeCluster) storedStatus(namespace string) *v1alpha1.JobReportStatus {
	y.t.Helper()
	report := &v1alpha1.JobReport{}
	if err := y.reconciler.live.Get(y.t.Context(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.JobReportName}, report); err != nil {
		y.t.Fatal(err)
	}
	return &report.Status
}

// addJobs adds so many Jobs, made that long before noon.
func (y *fakeCluster) addJobs(namespace string, count int, age time.Duration) {
	for range count {
		job := batchv1.Job{}
		job.Name = fmt.Sprintf("job-%05d", len(y.jobsByNamespace[namespace]))
		job.UID = types.UID(namespace + job.Name)
		job.CreationTimestamp = metav1.NewTime(testTime.Add(-age))
		y.jobsByNamespace[namespace] = append(y.jobsByNamespace[namespace], job)
	}
}

// assertScanFailed checks the conditions after a scan that failed.
func (y *fakeCluster) assertScanFailed(namespace, reason string) {
	y.t.Helper()
	status := y.storedStatus(namespace)
	failed := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionScanFailed)
	if failed == nil || failed.Status != metav1.ConditionTrue || failed.Reason != reason {
		y.t.Errorf("%s: condition %+v, want %s", namespace, failed, reason)
	}
	if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReportReady) {
		y.t.Errorf("%s: the report is said to be ready", namespace)
	}
}

func (y *fakeCluster) assertReportReady(namespace string) {
	y.t.Helper()
	status := y.storedStatus(namespace)
	if !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReportReady) ||
		!meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionScanFailed) {
		y.t.Errorf("%s: conditions %+v", namespace, status.Conditions)
	}
}

var (
	jobsResource = schema.GroupResource{Group: "batch", Resource: "jobs"}

	errForbidden = apierrors.NewForbidden(jobsResource, "", errors.New("no RBAC policy matched"))
	errExpired   = apierrors.NewResourceExpired("the continue token is too old")
	errConnectionRefused   = &url.Error{Op: "Get", URL: "https://10.0.0.1/jobs?continue=secret", Err: errors.New("connection refused")}
)

// failFromPage fails every page, from the one given.
func failFromPage(from int, err error) func(int) error {
	return func(page int) error {
		if page >= from {
			return err
		}
		return nil
	}
}

func TestAScanWritesOneReportPerNamespace(t *testing.T) {
	y := newFakeCluster(t, "a", "b")
	y.addJobs("a", 2, 48*time.Hour)
	y.addJobs("a", 1, time.Hour)
	y.addJobs("a", 1, time.Second)
	y.reconcileAll()

	y.assertReportReady("a")
	y.assertReportReady("b")
	want := v1alpha1.JobSummary{Total: 4, Healthy: 1, Suspicious: 1, Zombie: 2, ByReason: map[string]int32{"NeverStarted": 3}}
	if diff := cmp.Diff(want, y.storedStatus("a").Summary); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(v1alpha1.JobSummary{}, y.storedStatus("b").Summary); diff != "" {
		t.Errorf("summary of a namespace without Jobs:\n%s", diff)
	}
	for reason, want := range map[string]float64{"NeverStarted": 3} {
		if got := testbuilder.Metric(t, "yardmaster_jobreport_findings", "a", reason); got != want {
			t.Errorf("metric of %s: %v, want %v", reason, got, want)
		}
	}
	if got := testbuilder.Metric(t, "yardmaster_jobreport_last_success_timestamp_seconds", "a"); got != float64(testTime.Unix()) {
		t.Errorf("last success %v", got)
	}
}

func TestJobsAreListedInPagesFromTheNewestState(t *testing.T) {
	y := newFakeCluster(t, "a")
	y.addJobs("a", 1201, 48*time.Hour)
	y.reconcileAll()
	if got := y.storedStatus("a"); got.Summary.Zombie != 1201 || len(got.Findings) != 50 || got.Omitted != 1151 {
		t.Errorf("%d zombies, %d findings, %d omitted", got.Summary.Zombie, len(got.Findings), got.Omitted)
	}
	if len(y.lists) != 3 {
		t.Errorf("%d pages, want 3", len(y.lists))
	}
	for _, list := range y.lists {
		if list.Limit != 500 || list.Namespace != "a" || list.Raw != nil {
			t.Errorf("asked for %+v", list)
		}
	}
}

func TestASecondScanWritesNothing(t *testing.T) {
	y := newFakeCluster(t, "a", "b")
	y.addJobs("a", 700, 48*time.Hour)
	if got := len(y.reconcileAll()); got != 4 {
		t.Errorf("%d writes at first, want 4", got)
	}
	y.clock.Step(5 * time.Minute)
	if got := y.reconcileAll(); got != nil {
		t.Errorf("it writes %v", got)
	}
	y.clock.Step(66 * time.Minute)
	if got := len(y.reconcileAll()); got != 2 {
		t.Errorf("%d writes after an hour, want 2", got)
	}
	if got := y.storedStatus("a").LastScanTime.UTC(); !got.Equal(testTime.Add(71 * time.Minute)) {
		t.Errorf("last scan at %s", got)
	}
}

func TestOneChangedJobIsOneWriteAndOneFinding(t *testing.T) {
	y := newFakeCluster(t, "a", "b")
	y.addJobs("a", 10, 48*time.Hour)
	y.addJobs("b", 10, 48*time.Hour)
	y.reconcileAll()
	before := y.storedStatus("a").Findings
	y.jobsByNamespace["a"][3].Spec.Suspend = new(true)
	y.jobsByNamespace["a"][3].CreationTimestamp = metav1.NewTime(testTime.Add(-8 * 24 * time.Hour))
	if got := y.reconcileAll(); !cmp.Equal(got, []string{"patch a"}) {
		t.Errorf("writes %v", got)
	}
	after, differ := y.storedStatus("a").Findings, 0
	for i := range after {
		if !cmp.Equal(before[i], after[i]) {
			differ++
		}
	}
	if differ != 1 || len(after) != len(before) {
		t.Errorf("%d of %d findings differ", differ, len(after))
	}
}

func TestAScanThatFailsKeepsTheLastGoodFindings(t *testing.T) {
	for name, row := range map[string]struct {
		fail func(page int) error
		want string
	}{
		"a namespace without permission":          {failFromPage(0, errForbidden), "Forbidden"},
		"permission is lost on the way":           {failFromPage(1, errForbidden), "Forbidden"},
		"it takes too long":                       {failFromPage(1, fmt.Errorf("page: %w", context.DeadlineExceeded)), "Timeout"},
		"the API server takes too long":           {failFromPage(0, apierrors.NewTimeoutError("slow", 1)), "Timeout"},
		"the API server goes away":                {failFromPage(2, errConnectionRefused), "PartialList"},
		"the API server is away":                  {failFromPage(0, errConnectionRefused), "ListFailed"},
		"the list expires again and again":        {failFromPage(1, errExpired), "Expired"},
		"the API server has not what is asked of": {failFromPage(0, apierrors.NewInternalError(errors.New("etcd"))), "ListFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			y := newFakeCluster(t, "a", "b")
			y.addJobs("a", 1300, 48*time.Hour)
			y.addJobs("b", 3, 48*time.Hour)
			y.reconcileAll()
			good := y.storedStatus("a").DeepCopy()

			y.jobsByNamespace["a"] = y.jobsByNamespace["a"][:1250]
			y.addJobs("b", 1, 48*time.Hour)
			y.failures["a"] = row.fail
			y.clock.Step(5 * time.Minute)
			y.reconcileAll()
			y.assertScanFailed("a", row.want)
			kept := y.storedStatus("a").DeepCopy()
			if message := meta.FindStatusCondition(kept.Conditions, v1alpha1.ConditionScanFailed).Message; strings.Contains(message, "secret") {
				t.Errorf("it tells the continue token: %s", message)
			}
			kept.Conditions = good.Conditions
			if diff := cmp.Diff(good, kept); diff != "" {
				t.Errorf("the findings have changed (-good +kept):\n%s", diff)
			}
			y.assertReportReady("b")
			if got := y.storedStatus("b").Summary.Zombie; got != 4 {
				t.Errorf("the other namespace has %d zombies, want 4", got)
			}

			if got := y.reconcileAll(); got != nil {
				t.Errorf("failing again, it writes %v", got)
			}
			y.failures["a"] = nil
			y.reconcileAll()
			y.assertReportReady("a")
			if got := y.storedStatus("a").Summary.Zombie; got != 1250 {
				t.Errorf("recovered, it has %d zombies, want 1250", got)
			}
			if got := len(y.events.Events); got != 3 {
				t.Errorf("%d events, want one each of leaving out, failing and recovering", got)
			}
		})
	}
}

func TestAnExpiredListIsBegunAgain(t *testing.T) {
	y := newFakeCluster(t, "a")
	y.addJobs("a", 1200, 48*time.Hour)
	failures := 1
	y.failures["a"] = func(page int) error {
		if page == 1 && failures > 0 {
			failures--
			return errExpired
		}
		return nil
	}
	y.reconcileAll()
	y.assertReportReady("a")
	if got := y.storedStatus("a").Summary.Total; got != 1200 {
		t.Errorf("%d Jobs, want each once", got)
	}
}

func TestANamespaceThatIsForbiddenFromTheBeginning(t *testing.T) {
	y := newFakeCluster(t, "a")
	y.failures["a"] = failFromPage(0, errForbidden)
	if got := y.reconcileAll(); !cmp.Equal(got, []string{"create a", "patch a"}) {
		t.Errorf("writes %v", got)
	}
	y.assertScanFailed("a", "Forbidden")
}

func TestANamespaceThatDoesNotExist(t *testing.T) {
	for reason, refusal := range map[string]error{
		"NamespaceNotFound":    apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "a"),
		"NamespaceTerminating": errNamespaceTerminating(),
	} {
		t.Run(reason, func(t *testing.T) {
			y := newFakeCluster(t, "a")
			y.refusedWrites["create"] = refusal
			before := testbuilder.Metric(t, "yardmaster_jobreport_scan_errors_total", reason)
			if got := y.reconcileAll(); !cmp.Equal(got, []string{"create a"}) {
				t.Errorf("writes %v", got)
			}
			if got := testbuilder.Metric(t, "yardmaster_jobreport_scan_errors_total", reason) - before; got != 1 {
				t.Errorf("counted %v times", got)
			}
		})
	}
}

// A namespace takes its Role with it, so that nothing says that it is gone.
func TestWhatIsNotSeenAnyMoreIsNotCounted(t *testing.T) {
	for name, refusal := range map[string]error{
		"the namespace is gone":                  apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "a"),
		"the namespace goes":                     errNamespaceTerminating(),
		"there is no permission for reports too": errForbidden,
	} {
		t.Run(name, func(t *testing.T) {
			y := newFakeCluster(t, "a")
			y.addJobs("a", 2, 48*time.Hour)
			y.reconcileAll()
			if got := testbuilder.Metric(t, "yardmaster_jobreport_jobs", "Zombie", "a"); got != 2 {
				t.Fatalf("%v zombies counted, want 2", got)
			}
			y.failures["a"] = failFromPage(0, errForbidden)
			y.clock.Step(5 * time.Minute)
			y.reconcileAll()
			if got := testbuilder.Metric(t, "yardmaster_jobreport_jobs", "Zombie", "a"); got != 2 {
				t.Errorf("%v zombies counted while the report tells of 2", got)
			}
			y.failures["a"] = failFromPage(0, errExpired) // what is told changes, so that a write is due
			y.refusedWrites["patch"] = refusal
			y.reconcileAll()
			if testbuilder.Metric(t, "yardmaster_jobreport_jobs", "Zombie", "a") != 0 || testbuilder.Metric(t, "yardmaster_jobreport_findings", "a", "NeverStarted") != 0 {
				t.Error("they are counted still")
			}
			if got := testbuilder.Metric(t, "yardmaster_jobreport_last_success_timestamp_seconds", "a"); got != float64(testTime.Unix()) {
				t.Errorf("last success %v, want it kept", got)
			}
		})
	}
}

func TestAKindThatIsMissingIsNoMissingNamespace(t *testing.T) {
	y := newFakeCluster(t, "a")
	y.refusedWrites["create"] = apierrors.NewGenericServerResponse(404, "POST", schema.GroupResource{Resource: "jobreports"}, "jobs", "404 page not found", 0, true)
	before := testbuilder.Metric(t, "yardmaster_jobreport_scan_errors_total", "NamespaceNotFound")
	y.reconcileAll()
	if got := testbuilder.Metric(t, "yardmaster_jobreport_scan_errors_total", "NamespaceNotFound") - before; got != 0 {
		t.Error("it says that the namespace does not exist")
	}
}

func TestAFailureInOtherNumbersIsNotWritten(t *testing.T) {
	y := newFakeCluster(t, "a")
	reset := func(port int) error {
		return &url.Error{Op: "Get", URL: "https://10.0.0.1/jobs", Err: &net.OpError{
			Op: "read", Net: "tcp", Err: errors.New("connection reset by peer"),
			Source: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: port}, Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 443},
		}}
	}
	y.failures["a"] = failFromPage(0, reset(40001))
	y.reconcileAll()
	y.assertScanFailed("a", "ListFailed")
	y.failures["a"] = failFromPage(0, reset(51234))
	if got := y.reconcileAll(); got != nil {
		t.Errorf("it writes %v", got)
	}
}

func errNamespaceTerminating() error {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "jobreports"}, "jobs", errors.New("it goes"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func TestAReportThatIsDeletedIsMadeAgain(t *testing.T) {
	y := newFakeCluster(t, "a")
	y.addJobs("a", 1, 48*time.Hour)
	y.reconcileAll()
	report := &v1alpha1.JobReport{}
	report.Namespace, report.Name = "a", v1alpha1.JobReportName
	if err := y.reconciler.client.Delete(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	y.reconcileAll()
	y.assertReportReady("a")
}

func TestAReportIsStoredOnceTheAPIServerIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newFakeCluster(t, "a")
		y.reconciler.clock = New(nil, nil, nil, logr.Discard(), Options{}).clock
		y.failures["a"] = failFromPage(0, errConnectionRefused)
		y.refusedWrites["create"] = errConnectionRefused
		time.AfterFunc(5*time.Second, func() {
			y.mu.Lock()
			defer y.mu.Unlock()
			delete(y.refusedWrites, "create")
		})
		y.reconcileAll()
		y.assertScanFailed("a", "ListFailed")
	})
}

// It answers before it knows all Roles.
func TestAnAPIServerThatIsJustBackIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newFakeCluster(t, "a")
		y.addJobs("a", 600, 48*time.Hour)
		y.reconcileAll()
		y.reconciler.clock = New(nil, nil, nil, logr.Discard(), Options{}).clock
		y.failures["a"] = failFromPage(1, errConnectionRefused)
		y.refusedWrites["patch"] = errForbidden
		time.AfterFunc(3*time.Second, func() {
			y.mu.Lock()
			defer y.mu.Unlock()
			delete(y.refusedWrites, "patch")
		})
		before := testbuilder.Metric(t, "yardmaster_jobreport_scan_errors_total", "PartialList")
		y.reconcileAll()
		y.assertScanFailed("a", "PartialList")
		if got := testbuilder.Metric(t, "yardmaster_jobreport_scan_errors_total", "PartialList") - before; got != 1 {
			t.Errorf("counted %v times", got)
		}
	})
}

func TestAScanIsCountedByWhyItFailedNotByWhyThatCouldNotBeStored(t *testing.T) {
	y := newFakeCluster(t, "a")
	y.failures["a"] = failFromPage(0, apierrors.NewInternalError(errors.New("etcd")))
	y.refusedWrites["create"] = errForbidden
	failed, forbidden := testbuilder.Metric(t, "yardmaster_jobreport_scan_errors_total", "ListFailed"), testbuilder.Metric(t, "yardmaster_jobreport_scan_errors_total", "Forbidden")
	y.reconcileAll()
	if got := testbuilder.Metric(t, "yardmaster_jobreport_scan_errors_total", "ListFailed") - failed; got != 1 {
		t.Errorf("counted %v times", got)
	}
	if testbuilder.Metric(t, "yardmaster_jobreport_scan_errors_total", "Forbidden") != forbidden {
		t.Error("it is taken for another failure")
	}
}

func TestOnlySomeNamespacesAreScannedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var namespaces []string
		for i := range 20 {
			namespaces = append(namespaces, fmt.Sprintf("team-%d", i))
		}
		y := newFakeCluster(t, namespaces...)
		var mu sync.Mutex
		most, now := 0, 0
		c := interceptor.NewClient(y.reconciler.client.(client.WithWatch), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				now--
				mu.Unlock()
				return nil
			},
		})
		y.reconciler.live = c
		y.reconcileAll()
		if most != concurrentNamespaces {
			t.Errorf("%d at once, want %d", most, concurrentNamespaces)
		}
		y.assertReportReady("team-19")
	})
}

func TestANamespaceThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newFakeCluster(t, "a", "b")
		y.reconciler.live = interceptor.NewClient(y.reconciler.client.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, options ...client.ListOption) error {
				asked := client.ListOptions{}
				asked.ApplyOptions(options)
				if asked.Namespace == "b" {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			},
		})
		began := time.Now()
		y.reconcileAll()
		if took := time.Since(began); took != maxScanDuration {
			t.Errorf("it took %s, want %s", took, maxScanDuration)
		}
		y.assertScanFailed("a", "Timeout")
		y.assertReportReady("b")
	})
}

func TestTheFirstScanIsAtOnceAndThenEveryInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newFakeCluster(t, "a")
		y.reconciler.clock = New(nil, nil, nil, logr.Discard(), Options{}).clock
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- y.reconciler.Start(ctx) }()
		for _, want := range []int{1, 2, 3} {
			synctest.Wait()
			y.mu.Lock()
			if got := len(y.lists); got != want {
				t.Errorf("%d scans, want %d", got, want)
			}
			y.mu.Unlock()
			time.Sleep(5 * time.Minute)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Five namespaces hang, and four are scanned at once: that takes two intervals.
func TestAScanThatTakesLongerThanTheIntervalIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newFakeCluster(t, "a", "b", "c", "d", "e")
		y.reconciler.clock = New(nil, nil, nil, logr.Discard(), Options{}).clock
		y.reconciler.options.Interval = time.Minute
		var mu sync.Mutex
		scans, now, most := 0, map[string]int{}, 0
		y.reconciler.live = interceptor.NewClient(y.reconciler.client.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, options ...client.ListOption) error {
				asked := client.ListOptions{}
				asked.ApplyOptions(options)
				mu.Lock()
				scans++
				now[asked.Namespace]++
				most = max(most, now[asked.Namespace])
				mu.Unlock()
				<-ctx.Done()
				mu.Lock()
				now[asked.Namespace]--
				mu.Unlock()
				return ctx.Err()
			},
		})
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute+time.Second)
		defer stop()
		if err := y.reconciler.Start(ctx); err != nil {
			t.Error(err)
		}
		if most != 1 {
			t.Errorf("%d scans of a namespace at once", most)
		}
		if scans < 25 || scans > 30 {
			t.Errorf("%d namespaces scanned in ten minutes, want five every two", scans)
		}
	})
}

func TestOneReplicaScans(t *testing.T) {
	if !(&Reconciler{}).NeedLeaderElection() {
		t.Error("all do")
	}
}
