package decision

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/kstatustest"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestATruncatedMessageIsValidTextWithinItsLimit(t *testing.T) {
	for title, test := range map[string]struct {
		message, want string
	}{
		"a message at the limit":            {"0123456789", "0123456789"},
		"a longer message is marked":        {"0123456789a", "0123456…"},
		"a character is not split":          {"012345ää6789", "012345…"},
		"invalid bytes count as replaced":   {"01234\xff6789a", "01234…"},
		"an invalid byte alone is replaced": {"0\xff1", "0\uFFFD1"},
	} {
		t.Run(title, func(t *testing.T) { require.Equal(t, test.want, TruncateMessage(test.message, 10)) })
	}
}

func TestJobsOfARunHaveTheLabelOfTheScheduleThatControlsIt(t *testing.T) {
	schedule := &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Name: "nightly", UID: "1"}}
	for title, row := range map[string]struct {
		owners []metav1.OwnerReference
		want   string
	}{
		"a Schedule":                          {ControllerReferences("Schedule", schedule), "nightly"},
		"another controller":                  {ControllerReferences("SequentialJob", schedule), ""},
		"a Schedule that does not control it": {[]metav1.OwnerReference{{APIVersion: "yardmaster.dev/v1alpha1", Kind: "Schedule", Name: "nightly"}}, ""},
		"no owner":                            {nil, ""},
	} {
		labels := map[string]string{}
		SetScheduleLabel(labels, &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelSchedule: "forged"}, OwnerReferences: row.owners}})
		assert.Equal(t, title, row.want, labels[v1alpha1.LabelSchedule])
	}
}

// Each other class is handled or retried.
func TestRefusalsAreThoseThatOnlyAChangeOfAnObjectResolves(t *testing.T) {
	refused := Refusal{Kind: "Pod", Name: "a", Step: "s"}
	for title, row := range map[string]struct {
		err  error
		want Class
	}{
		"invalid":           {apierrors.NewBadRequest(" unknown field\n"), Invalid},
		"denied":            {forbidden(`violates PodSecurity "restricted:latest"`), PolicyDenied},
		"no room in quota":  {forbidden("exceeded quota: pods"), QuotaExceeded},
		"no ServiceAccount": {forbidden("error looking up service account a/b"), ServiceAccountMissing},
		"no permission":     {forbidden("other"), None},
		"conflict":          {apierrors.NewConflict(pods, "a", nil), None},
		"unavailable":       {errors.New("connection refused"), None},
		"no error":          {nil, None},
	} {
		var want *Refusal
		if row.want != None {
			want = &Refusal{Class: row.want, Kind: "Pod", Name: "a", Step: "s", Message: row.err.Error()}
		}
		if title == "invalid" {
			want.Message = "unknown field"
		}
		assert.Equal(t, title, want, AsRefusal(row.err, refused))
	}
	want := &Refusal{AlreadyExists, "Pod", "a", "s", "Pod a already exists and does not belong to this Queue; delete it"}
	require.Equal(t, want, NameTaken(refused, "Queue"))
}

func TestADeletionWasRequestedItsGracePeriodBeforeItsTime(t *testing.T) {
	deleted := metav1.NewTime(time.Unix(100, 0))
	for grace, want := range map[int64]int64{0: 100, 30: 70} {
		require.Equal(t, want, DeletionRequestTime(&metav1.ObjectMeta{DeletionTimestamp: &deleted, DeletionGracePeriodSeconds: &grace}).Unix())
	}
}

func TestATimerDecidesAgainAtTheEarliestDueTime(t *testing.T) {
	now := time.Unix(100, 0)
	for _, earlier := range []time.Duration{0, time.Second, time.Hour} {
		for _, left := range []time.Duration{-time.Minute, 0, 1, time.Minute} {
			timer := Timer{Now: now, RequeueAfter: earlier}
			reached, want := timer.HasReached(now.Add(left)), earlier
			if left > 0 {
				want = Earliest(earlier, max(left, time.Millisecond))
			}
			isRight := reached == (left <= 0) && timer.RequeueAfter == want
			require.True(t, isRight, "due in %s, and again after %s: reached %t, %+v, want %s", left, earlier, reached, timer, want)
		}
	}
}

func TestBackoffGrowsUpToItsLimit(t *testing.T) {
	for _, test := range []struct {
		retry  v1alpha1.Retry
		failed int32
		want   time.Duration
	}{
		{v1alpha1.Retry{}, 0, 10 * time.Second},
		{v1alpha1.Retry{}, 3, 80 * time.Second},
		{v1alpha1.Retry{}, 99, 10 * time.Minute},
		{v1alpha1.Retry{Backoff: v1alpha1.NewDuration(24 * time.Hour), MaxBackoff: v1alpha1.NewDuration(24 * time.Hour)}, 99, 24 * time.Hour},
		{v1alpha1.Retry{Backoff: v1alpha1.NewDuration(time.Minute), MaxBackoff: v1alpha1.NewDuration(30 * time.Second)}, 0, 30 * time.Second},
		{v1alpha1.Retry{Backoff: v1alpha1.NewDuration(time.Hour)}, 3, time.Hour},
		{v1alpha1.Retry{Factor: new(v1alpha1.Number("1.5"))}, 2, 22500 * time.Millisecond},
		{v1alpha1.Retry{Factor: new(v1alpha1.Number("1"))}, 99, 10 * time.Second},
		{v1alpha1.Retry{Factor: new(v1alpha1.Number("10"))}, 99, 10 * time.Minute},
	} {
		assert.Equal(t, fmt.Sprintf("%+v after %d failures", test.retry, test.failed), test.want, RetryBackoff(&test.retry, test.failed))
	}
}

var setTime = metav1.NewTime(time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC))

func objectWithConditions(generation, observedGeneration int64, conditions []metav1.Condition) *v1alpha1.Queue {
	object := &v1alpha1.Queue{}
	object.Generation, object.Status.ObservedGeneration, object.Status.Conditions = generation, observedGeneration, conditions
	return object
}

func TestConditionsAreReadByKstatus(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	for title, test := range map[string]struct {
		summary Summary
		want    status.Status
		// wantReconciling and wantStalled are the conditions' statuses.
		wantReconciling, wantStalled metav1.ConditionStatus
	}{
		"ready and settled":               {Summary{Ready: yes, Progress: Settled}, status.CurrentStatus, no, no},
		"ready while it is being changed": {Summary{Ready: yes, Progress: InProgress}, status.InProgressStatus, yes, no},
		"not ready yet":                   {Summary{Ready: no, Progress: InProgress}, status.InProgressStatus, yes, no},
		"unknown":                         {Summary{Ready: unknown, Progress: InProgress}, status.InProgressStatus, yes, no},
		"suspended or stopped":            {Summary{Ready: no, Progress: Settled}, status.InProgressStatus, no, no},
		"stuck":                           {Summary{Ready: no, Progress: Stuck}, status.FailedStatus, no, yes},
	} {
		t.Run(title, func(t *testing.T) {
			var conditions []metav1.Condition
			test.summary.Reason, test.summary.Message = "SomeReason", "some message"
			Set(&conditions, 3, setTime, test.summary)
			kstatustest.AssertKstatus(t, objectWithConditions(3, 3, conditions), test.want)
			kstatustest.AssertKstatus(t, objectWithConditions(4, 3, conditions), status.InProgressStatus)
			for kind, want := range map[string]metav1.ConditionStatus{
				v1alpha1.ConditionReady:       test.summary.Ready,
				v1alpha1.ConditionReconciling: test.wantReconciling,
				v1alpha1.ConditionStalled:     test.wantStalled,
			} {
				got := meta.FindStatusCondition(conditions, kind)
				isOfSummary := got.Reason == "SomeReason" && got.Message == "some message" && got.ObservedGeneration == 3
				require.True(t, got.Status == want && isOfSummary, "condition %s is %+v, want status %s", kind, got, want)
			}
		})
	}
}

func TestEqualContentHasTheSameHashOfTheGivenLength(t *testing.T) {
	hashes := map[string]string{}
	for title, value := range map[string]any{
		"a text": new("a"), "another text": new("b"), "no value": nil, "not in JSON": math.Inf(1), "another value that is not in JSON": math.Inf(-1),
	} {
		hash := ContentHash(value, 10)
		require.True(t, hashes[hash] == "" && len(hash) == 10, "%s has the hash %q, like %q", title, hash, hashes[hash])
		hashes[hash] = title
	}
	require.Equal(t, "a text", hashes[ContentHash(new("a"), 10)]) // of another copy
}

// A child is that of its controller. Only a child without a controller, which the garbage collector must not delete, is found by its label.
func TestAChildBelongsToItsControllerOrElseToTheOwnerInItsLabel(t *testing.T) {
	const label = "owner-uid"
	owner := &metav1.ObjectMeta{Name: "mine", UID: "1"}
	controllers := map[string][]metav1.OwnerReference{
		"no controller": nil, "the owner": ControllerReferences("Queue", owner), "another object": ControllerReferences("Queue", &metav1.ObjectMeta{Name: "mine", UID: "2"}),
	}
	for controller, references := range controllers {
		for _, uid := range []string{"", "1", "2"} {
			child := &metav1.ObjectMeta{OwnerReferences: references, Labels: map[string]string{label: uid}}
			want := controller == "the owner" || controller == "no controller" && uid == "1"
			assert.Equal(t, fmt.Sprintf("controlled by %s, with the label %q", controller, uid), want, WasCreatedFor(owner, child, label))
		}
	}
}

func TestAJobHasEndedOnlyWithATerminalConditionThatIsTrue(t *testing.T) {
	for _, kind := range []batchv1.JobConditionType{
		batchv1.JobComplete, batchv1.JobFailed, batchv1.JobSuspended, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet,
	} {
		for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown} {
			job := &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: "Other", Status: corev1.ConditionTrue}, {Type: kind, Status: status}}}}
			got := FindEndCondition(job)
			ended := (kind == batchv1.JobComplete || kind == batchv1.JobFailed) && status == corev1.ConditionTrue
			require.True(t, ended == (got != nil) && (got == nil || got.Type == kind), "%s is %s: ended with %v", kind, status, got)
		}
	}
}

func TestFlagsOfABucketAreNotExpanded(t *testing.T) {
	for region, want := range map[string]string{"": "us-east-1", "eu-west-1": "eu-west-1"} {
		flags := BucketFlags(&v1alpha1.ArchiveS3{Endpoint: "https://$(HOST)", Bucket: "b", Prefix: "p", Region: region}, "/keys")
		require.Equal(t, "--endpoint=https://$$(HOST) --bucket=b --prefix=p --region="+want+" --credentials=/keys", strings.Join(flags, " "))
	}
}

var pods = schema.GroupResource{Resource: "pods"}

func forbidden(cause string) *apierrors.StatusError {
	return apierrors.NewForbidden(pods, "a", errors.New(cause))
}

func withReason(err *apierrors.StatusError, reason metav1.StatusReason, code int32) error {
	err.ErrStatus.Reason, err.ErrStatus.Code = reason, code
	return err
}

func statusError(reason metav1.StatusReason, code int32, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: reason, Code: code, Message: message}}
}

func terminatingNamespace() error {
	err := forbidden("unable to create new content in namespace ns because it is being terminated")
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// The messages are those of a real API server, which test/integration compares them with.
func TestClassOfErrors(t *testing.T) {
	for title, test := range map[string]struct {
		err  error
		want Class
	}{
		"no error": {nil, None},

		"missing permission":     {forbidden(`User "jane" cannot create resource "pods" in API group "" in the namespace "ns"`), PermissionMissing},
		"grant escalation":       {forbidden(`user "jane" (groups=["dev"]) is attempting to grant RBAC permissions not currently held:`), PermissionMissing},
		"unknown refusal":        {forbidden("something new"), PermissionMissing},
		"forbidden, no details":  {statusError(metav1.StatusReasonForbidden, http.StatusForbidden, "forbidden"), PermissionMissing},
		"permission named quota": {forbidden(`User "exceeded quota: " cannot create resource "pods"`), PermissionMissing},

		"quota without room":              {forbidden("exceeded quota: pods, requested: pods=1, used: pods=1, limited: pods=1"), QuotaExceeded},
		"new quota":                       {forbidden("status unknown for quota: pods, resources: pods"), QuotaExceeded},
		"quota on an unset resource":      {forbidden("failed quota: cpu: must specify limits.cpu for: main"), QuotaExceeded},
		"quota required, but none exists": {forbidden("insufficient quota to consume: pods"), QuotaExceeded},

		"PodSecurity":                                   {forbidden(`violates PodSecurity "restricted:latest": privileged`), PolicyDenied},
		"LimitRange with a minimum":                     {forbidden("minimum cpu usage per Container is 1, but request is 500m"), PolicyDenied},
		"LimitRange with a maximum":                     {forbidden("maximum cpu usage per Container is 1, but limit is 2"), PolicyDenied},
		"LimitRange with a ratio":                       {forbidden("cpu max limit to request ratio per Container is 1, but provided ratio is 2.000000"), PolicyDenied},
		"LimitRange with several limits":                {forbidden("[maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Container is 1Gi]"), PolicyDenied},
		"RuntimeClass does not exist":                   {forbidden(`pod rejected: RuntimeClass "gvisor" not found`), PolicyDenied},
		"RuntimeClass conflicts with the node selector": {forbidden("conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c"), PolicyDenied},
		"PriorityClass does not exist":                  {forbidden("no PriorityClass with name urgent was found"), PolicyDenied},
		"policy that denies as Forbidden":               {forbidden("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"), PolicyDenied},
		"policy that denies as Invalid":                 {withReason(forbidden("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"), metav1.StatusReasonInvalid, 422), PolicyDenied},
		"policy that denies as too large":               {withReason(forbidden("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"), metav1.StatusReasonRequestEntityTooLarge, 413), PolicyDenied},
		"policy without its parameters":                 {statusError(metav1.StatusReasonForbidden, 403, "policy 'p' with binding 'b' denied request: failed to configure binding: no params found"), PolicyDenied},
		"webhook that denies as Forbidden":              {statusError(metav1.StatusReasonForbidden, 403, `admission webhook "w.example.com" denied the request: no`), PolicyDenied},
		"webhook that denies as Conflict":               {statusError(metav1.StatusReasonConflict, 409, `admission webhook "w.example.com" denied the request: no`), PolicyDenied},
		"webhook that denies without a reason":          {statusError("", 400, `admission webhook "w.example.com" denied the request without explanation`), PolicyDenied},
		"webhook that does not support dry run":         {apierrors.NewBadRequest(`admission webhook "w.example.com" does not support dry run`), Invalid},
		"webhook that cannot be called":                 {apierrors.NewInternalError(errors.New(`failed calling webhook "w.example.com": connection refused`)), Unavailable},

		"service account not created yet": {forbidden(`error looking up service account ns/default: serviceaccount "default" not found`), ServiceAccountMissing},
		"API server is starting":          {forbidden("not yet ready to handle request"), Unavailable},

		"terminating namespace": {terminatingNamespace(), NamespaceTerminating},
		"invalid":               {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", nil), Invalid},
		"message that begins like that of a policy":            {statusError(metav1.StatusReasonConflict, 409, "policy 'p' has changed"), Conflict},
		"message that begins like that of an undeclared field": {statusError("", 500, "failed to create typed patch object (ns/a): out of memory"), Unavailable},
		"undeclared field": {
			statusError("", 500, "failed to create typed patch object (ns/a; apps/v1, Kind=Deployment): .spec.x: field not declared in schema"), Invalid,
		},
		"RuntimeClass with an invalid name":    {statusError("", 500, `invalid resource name "a/b": [may not contain '/']`), Invalid},
		"service account with an invalid name": {forbidden(`error looking up service account ns/a/b: invalid resource name "a/b": [may not contain '/']`), Invalid},
		"bad request":                          {apierrors.NewBadRequest("unknown field"), Invalid},
		"object too large":                     {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), Invalid},
		"conflict":                             {apierrors.NewConflict(pods, "a", errors.New("changed")), Conflict},
		"not found":                            {apierrors.NewNotFound(pods, "a"), NotFound},
		"already exists":                       {apierrors.NewAlreadyExists(pods, "a"), AlreadyExists},
		"expired token":                        {apierrors.NewResourceExpired("too old"), Expired},
		"old resourceVersion":                  {apierrors.NewResourceExpired("too old resource version"), Expired},
		"timeout":                              {apierrors.NewTimeoutError("slow", 1), Timeout},
		"server timeout":                       {apierrors.NewServerTimeout(pods, "list", 1), Timeout},
		"deadline":                             {context.DeadlineExceeded, Timeout},
		"too many requests":                    {apierrors.NewTooManyRequests("busy", 1), Unavailable},
		"not ready":                            {apierrors.NewServiceUnavailable("starting"), Unavailable},
		"not authenticated":                    {apierrors.NewUnauthorized("unknown token"), PermissionMissing},
		"network timeout":                      {&net.DNSError{IsTimeout: true}, Timeout},
		"connection refused":                   {errors.New("connection refused"), Unavailable},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, test.want, ClassOf(test.err))
			if test.err != nil {
				require.Equal(t, test.want, ClassOf(fmt.Errorf("creating the Pod: %w", test.err)))
			}
		})
	}
}

// The estimate differs from the memory that many copies of the object occupy by a third at most.
func TestMemoryOfAnObjectIsEstimated(t *testing.T) {
	text := func(bytes int) string { return strings.Repeat("x", bytes) }
	labels := func(count int) map[string]string {
		labels := map[string]string{}
		for i := range count {
			labels[fmt.Sprintf("key-%04d", i)] = "value"
		}
		return labels
	}
	for title, object := range map[string]*corev1.Pod{
		"an empty object":          {},
		"a time":                   {ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Now())}},
		"a long text":              {Status: corev1.PodStatus{Message: text(100_000)}},
		"many empty containers":    {Spec: corev1.PodSpec{Containers: make([]corev1.Container, 100)}},
		"many labels":              {ObjectMeta: metav1.ObjectMeta{Labels: labels(1000)}},
		"a long label":             {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{text(1000): text(3000)}}},
		"one label":                {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}},
		"texts of different sizes": {Spec: corev1.PodSpec{Containers: []corev1.Container{{Args: []string{text(1), text(10), text(1000)}}}}},
	} {
		t.Run(title, func(t *testing.T) {
			const copies = 500
			kept := make([]*corev1.Pod, 0, copies)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for range copies {
				c := object.DeepCopy()
				c.Status.Message = strings.Clone(c.Status.Message) // copies share texts
				kept = append(kept, c)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			estimated, used := MemoryOf(object), int(after.HeapAlloc-before.HeapAlloc)/copies
			t.Logf("estimated %d bytes, used %d", estimated, used)
			shared := 0 // the texts of the maps and lists, which copies share
			for key, value := range object.Labels {
				shared += len(key) + len(value)
			}
			for i := range object.Spec.Containers {
				for _, arg := range object.Spec.Containers[i].Args {
					shared += len(arg)
				}
			}
			difference := estimated - shared - used
			require.True(t, max(difference, -difference) <= used/3, "estimated %d bytes, %d of them are shared, used %d", estimated, shared, used)
			runtime.KeepAlive(kept)
		})
	}
}

func TestAnObjectIsTooLargeBeyond128KiBAndOnceItsSpecWasDropped(t *testing.T) {
	const ownSize = 16 // of a text
	for title, test := range map[string]struct {
		bytes   int
		dropped bool
		want    bool
	}{
		"128 KiB":             {bytes: MaxSpecBytes - ownSize},
		"one byte more":       {bytes: MaxSpecBytes - ownSize + 1, want: true},
		"without its spec":    {dropped: true, want: true},
		"nothing of the kind": {},
	} {
		object := &metav1.ObjectMeta{}
		if test.dropped {
			object.Annotations = map[string]string{AnnotationTooLarge: ""}
		}
		assert.Equal(t, title, test.want, IsTooLarge(object, strings.Repeat("x", test.bytes)))
	}
}

func TestTheEarliestWaitIsTheShortestThatIsNotNever(t *testing.T) {
	require.Equal(t, 0, Earliest())
	for _, a := range []time.Duration{0, 1, 2} {
		for _, b := range []time.Duration{0, 1, 2} {
			want := min(a, b)
			if want == 0 { // one of them is never
				want = max(a, b)
			}
			require.Equal(t, want, Earliest(a, b))
		}
	}
}

func TestAPodHasEndedInItsLastPhases(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]bool{"": false, corev1.PodPending: false, corev1.PodRunning: false, corev1.PodUnknown: false, corev1.PodSucceeded: true, corev1.PodFailed: true} {
		assert.Equal(t, string(phase), want, HasPodEnded(&corev1.Pod{Status: corev1.PodStatus{Phase: phase}}))
	}
}

func TestASidecarIsAnInitContainerThatAlwaysRestarts(t *testing.T) {
	for _, policy := range []corev1.ContainerRestartPolicy{"", corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "other"}, {Name: "proxy", RestartPolicy: &policy}}}}
		for _, name := range []string{"proxy", "other", "none"} {
			assert.Equal(t, name+" "+string(policy), name == "proxy" && policy == corev1.ContainerRestartPolicyAlways, IsSidecar(pod, name))
		}
	}
}

// The kubelet reads 12 KiB of all containers together, and 4 KiB of each.
func TestContainersOfAllTypesShareTheTerminationMessagesOfAPod(t *testing.T) {
	pod := &corev1.PodSpec{InitContainers: make([]corev1.Container, 4), Containers: make([]corev1.Container, 3), EphemeralContainers: make([]corev1.EphemeralContainer, 1)}
	for containers, want := range map[int]int{1: 4096, 3: 4096, 4: 3072, CountContainers(pod): 1536} {
		require.Equal(t, want, TerminationMessageLimit(containers))
	}
}

func TestAReasonIsFoundInTheConditionOfItsKind(t *testing.T) {
	conditions := []metav1.Condition{{Type: "Other", Reason: "Wanted"}, {Type: "Ready", Reason: "Present"}}
	require.True(t, FindReason(conditions, "Ready", "Present") == &conditions[1], "the condition is not found")
	for kind, reason := range map[string]string{"Ready": "Wanted", "Other": "Present", "Missing": "Wanted"} {
		require.True(t, FindReason(conditions, kind, reason) == nil, "%s with %s is found", kind, reason)
	}
}

func TestValuesHaveTheirFields(t *testing.T) {
	require.Equal(t, State{metav1.ConditionTrue, "R", "m"}, True("R", "m"))
	require.Equal(t, State{metav1.ConditionFalse, "R", "m"}, False("R", "m"))
	require.Equal(t, Event{Type: "Normal", Reason: "R", Action: "A", Message: "m"}, NormalEvent("R", "A", "m"))
	require.Equal(t, Event{Type: "Normal", Reason: "R", Action: "A", Message: "m", Routine: true}, RoutineEvent("R", "A", "m"))
	require.Equal(t, Event{Type: "Warning", Reason: "R", Action: "A", Message: "m"}, WarningEvent("R", "A", "m"))
	require.Equal(t, "R: m", FormatReason("R", "m"))
	require.Equal(t, "R", FormatReason("R", ""))
	order := []bool{false, true, false, true}
	slices.SortFunc(order, CompareTrueFirst)
	require.Equal(t, []bool{true, true, false, false}, order)
	require.Equal(t, 0, CompareTrueFirst(true, true))
}
