package integration

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// etlSpec is the spec of a SequentialJob whose Pods run until the test ends them.
const etlSpec = `{"containers": [{"name": "load", "image": "etl:1"}],
	"template": {"metadata": {"annotations": {"sim.localcluster.dev/duration": "1h"}}}}`

type scheduleTest struct {
	t *testing.T
	s *v1alpha1.Schedule
}

// newScheduleOf returns a Schedule that is due every hour, in a namespace.
func newScheduleOf(ns, name string, changes ...func(*v1alpha1.ScheduleSpec)) *v1alpha1.Schedule {
	s := &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
	s.Spec.Schedule = "0 * * * *"
	s.Spec.SequentialJob = &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: []byte(etlSpec)}}
	for _, change := range changes {
		change(&s.Spec)
	}
	return s
}

func createSchedule(t *testing.T, ns string, changes ...func(*v1alpha1.ScheduleSpec)) *scheduleTest {
	t.Helper()
	s := newScheduleOf(ns, "nightly", changes...)
	mustCreate(t, s)
	test := &scheduleTest{t, s}
	test.waitUntil("the first observation", func(s *v1alpha1.Schedule) bool { return s.Status.Timetable != nil })
	return test
}

func (s *scheduleTest) read() *v1alpha1.Schedule {
	s.t.Helper()
	mustGet(s.t, client.ObjectKeyFromObject(s.s), s.s)
	return s.s
}

func (s *scheduleTest) waitUntil(what string, condition func(*v1alpha1.Schedule) bool) *v1alpha1.Schedule {
	s.t.Helper()
	poll.Until(s.t, what, func() bool { return condition(s.read()) })
	return s.s
}

func (s *scheduleTest) change(change func(*v1alpha1.ScheduleSpec)) {
	s.t.Helper()
	before := s.read().DeepCopy()
	change(&s.s.Spec)
	mustPatch(s.t, s.s, client.MergeFrom(before))
}

// makeDue makes all times of the last hours due, as if the operator had been away.
func (s *scheduleTest) makeDue(hours int) {
	s.t.Helper()
	before := s.read().DeepCopy()
	s.s.Status.Timetable.Since = metav1.NewTime(time.Now().Add(-time.Duration(hours) * time.Hour))
	s.s.Status.LastScheduleTime = nil
	require.NoError(s.t, cluster.Status().Patch(s.t.Context(), s.s, client.MergeFrom(before)))
	s.change(func(spec *v1alpha1.ScheduleSpec) { spec.FailedRunsHistoryLimit = new(int32(10 + s.s.Generation%100)) }) // so that it is observed
}

func (s *scheduleTest) runs() []v1alpha1.SequentialJob {
	s.t.Helper()
	var list v1alpha1.SequentialJobList
	require.NoError(s.t, cluster.List(s.t.Context(), &list, client.InNamespace(s.s.Namespace), client.MatchingLabels{v1alpha1.LabelSchedule: s.s.Name}))
	return list.Items
}

func (s *scheduleTest) waitForReady(status metav1.ConditionStatus, reason string) string {
	s.t.Helper()
	var message string
	s.waitUntil(fmt.Sprintf("Ready to be %s because of %s", status, reason), func(s *v1alpha1.Schedule) bool {
		ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
		if ready != nil {
			message = ready.Message
		}
		return ready != nil && ready.Status == status && ready.Reason == reason
	})
	return message
}

func TestAForeignObjectWithTheNameOfARunIsNotTouched(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	due := time.Now().Truncate(time.Hour)
	s := newScheduleOf(ns, "nightly")
	foreign := testbuilder.SequentialJob(schedule.RunName(s, due), ns).Step("mine").Suspend().Obj()
	mustCreate(t, foreign)
	test := createSchedule(t, ns)
	test.makeDue(1)
	message := test.waitForReady(metav1.ConditionFalse, v1alpha1.ReasonRunRefused)
	require.True(t, strings.Contains(message, "already exists and does not belong to this Schedule"), "message %q", message)
	err := cluster.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign)
	require.True(t, err == nil && foreign.Spec.Containers[0].Name == "mine", "the other object: %v, %v", foreign.Spec.Containers, err)
}

func TestSchedulesAreValidatedWithADryRunOfWhatTheyCreate(t *testing.T) {
	t.Parallel()
	const oneStep, exactlyOne = `{containers: [{name: a, image: a}]}`, "exactly one of sequentialJob, agenticSession and message must be set"
	of := func(spec string) string { return `{schedule: "0 * * * *", sequentialJob: {spec: ` + spec + `}}` }
	due := func(schedule string) string {
		return `{schedule: "` + schedule + `", sequentialJob: {spec: ` + oneStep + `}}`
	}
	with := func(fields string) string {
		return `{schedule: "0 * * * *", sequentialJob: {spec: ` + oneStep + `}, ` + fields + `}`
	}
	message := func(fields string) string {
		return `{schedule: "0 * * * *", message: {queueRef: {name: billing}, kind: invoice}, ` + fields + `}`
	}
	rerun := func(request string) string { return with(`rerun: {` + request + `}`) }
	assertSpecsRefused(t, "Schedule", []invalidSpec{
		{"a schedule that is no cron expression", due("every day"), "spec.schedule: "},
		{"a schedule that is never due", due("0 0 30 2 *"), "is never due"},
		{"a wrong one of several schedules", due("0 0 * * *; 0 25 * * *"), `"0 25 * * *": `},
		{"a condition that is not true or false", with(`when: "runs.size()"`), "spec.when: "},
		{"a condition about an unknown field", with(`when: "runs[0].failed"`), "undefined field 'failed'"},
		{"a stop after no failure", with(`suspendAfterFailures: 0`), "suspendAfterFailures"},
		{"an unknown time zone", with(`timeZone: Europe/Atlantis`), "spec.timeZone: "},
		{"no kind", `{schedule: "0 * * * *"}`, exactlyOne},
		{"two kinds", with(`agenticSession: {spec: {prompt: a}}`), exactlyOne},
		{"jitter of more than a day", with(`jitter: 25h`), "jitter must be a duration from 0s to 24h"},
		{"a message of a Schedule that waits for runs", message(`concurrencyPolicy: Forbid`), "can only have concurrencyPolicy Allow"},
		{"a message of a Schedule that counts failures", message(`suspendAfterFailures: 1`), "cannot have suspendAfterFailures"},
		{"a rerun without an id", rerun(``), "spec.rerun.id"},
		{"a rerun of a range backwards", rerun(`id: a, from: "2026-01-02T09:00:00Z", to: "2026-01-02T08:00:00Z"`), "to must not be before from"},
		{"a rerun of a range from never", rerun(`id: a, to: "2026-01-02T08:00:00Z"`), "to must not be before from"},
		{"a rerun before 1970", rerun(`id: a, from: "0001-01-01T00:00:01Z"`), "from must not be before 1970"},
		{
			"a reserved label", `{schedule: "0 * * * *", sequentialJob: {metadata: {labels: {yardmaster.dev/schedule: x}}, spec: ` + oneStep + `}}`,
			"is reserved",
		},
		{
			"a time to live that is shorter than an observation", of(`{containers: [{name: a, image: a}], ttlSecondsAfterFinished: 0}`),
			"ttlSecondsAfterFinished: must be at least 60",
		},
		{"a field that does not exist", of(`{containers: [{name: a, image: a, comand: ["true"]}]}`), "comand"},
		{"a value that is refused", of(`{containers: []}`), "spec.sequentialJob: its runs would be refused"},
		{
			"a step whose Jobs are refused",
			of(`{containers: [{name: ok, image: a}, {name: greedy, image: a, resources: {requests: {cpu: "2"}, limits: {cpu: "1"}}}]}`),
			`spec.sequentialJob: Jobs of step "greedy" of its runs would be refused`,
		},
		{
			"what only the webhook of the runs refuses",
			of(`{containers: [{name: a, image: a}], template: {metadata: {labels: {yardmaster.dev/step: x}}}}`), "its runs would be refused",
		},
	})
	assertRefused(t, newManifest(t, "Schedule", namespace(t), strings.Repeat("n", 42), due("0 * * * *")), false, "at most 41 characters")
}

func TestASchedulesPodsThatWouldBeRefusedNowAreAWarning(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	createIfMissing(t, newUnschedulableRunner(t, ns))
	isRefused := provokeLimitRange(`max: {cpu: 500m}`)(t, ns)
	poll.Until(t, "the LimitRange to be effective", func() bool { return strings.Contains(fmt.Sprint(isRefused()), "maximum cpu") })
	for want, fields := range map[string]string{
		`spec.sequentialJob: Pods of step "load" of its runs would be refused now`: `sequentialJob: {spec: {containers: [{name: load, image: a}]}}`,
		`spec.agenticSession: spec.runner: SessionRunner missing does not exist`:   `agenticSession: {spec: {prompt: review, runner: missing}}`,
		`spec.agenticSession: Pods of its runs would be refused now`:               `agenticSession: {spec: {prompt: a, resources: {limits: {cpu: "1"}}}}`,
	} {
		var warnings warningList
		s := newManifest(t, "Schedule", ns, "warned", `{schedule: "0 * * * *", `+fields+`}`)
		wantAllowed(t, want, strictClient(t, &warnings).Create(t.Context(), s, client.DryRunAll))
		require.Contains(t, strings.Join(warnings.all, "\n"), want)
	}
}

// The examples are applied with strict field validation, and start what they contain.
func TestExamplesOfSchedulesStartRuns(t *testing.T) {
	t.Parallel()
	for _, file := range examples(t, "schedule/*.yaml", "etl/nightly-sales.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			manifest := readManifests(t, file)[0]
			manifest.SetNamespace(namespace(t))
			var warnings warningList
			require.NoError(t, apply(t.Context(), strictClient(t, &warnings), manifest, false))
			s := &scheduleTest{t, &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: manifest.GetNamespace(), Name: manifest.GetName()}}}
			if s.read().Spec.Message != nil { // TestADueScheduleSendsAJobToItsQueueOnceItIsReady sends one
				s.waitForReady(metav1.ConditionFalse, v1alpha1.ReasonQueueNotFound)
				return
			}
			s.waitForReady(metav1.ConditionTrue, v1alpha1.ReasonScheduled)
			s.change(func(spec *v1alpha1.ScheduleSpec) { spec.StartingDeadlineSeconds = nil })
			s.makeDue(14 * 24)
			s.waitUntil("a run", func(s *v1alpha1.Schedule) bool { return s.Status.Runs == 1 && s.Status.Active == 1 })
			if s.s.Spec.SequentialJob == nil {
				return // the SessionRunner does not exist
			}
			poll.Until(t, "a Job with the label of the Schedule, by which reports group it", func() bool {
				var jobs batchv1.JobList
				selection := client.MatchingLabels{v1alpha1.LabelSchedule: manifest.GetName()}
				require.NoError(t, cluster.List(t.Context(), &jobs, client.InNamespace(manifest.GetNamespace()), selection))
				return len(jobs.Items) > 0 && jobreport.OwnerOf(&jobs.Items[0]).String() == "Schedule/"+manifest.GetName()
			})
		})
	}
}

func TestAScheduleWhoseRunsAreRefusedCanBeSuspended(t *testing.T) {
	t.Parallel()
	ns := namespaceWithoutWebhook(t)
	s := createSchedule(t, ns, func(spec *v1alpha1.ScheduleSpec) { spec.SequentialJob.Spec.Raw = []byte(`{"containers": []}`) })
	withWebhook := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	mustPatch(t, withWebhook, client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"labels": {"`+testenv.WebhookLabel+`": null}}}`)))
	poll.Until(t, "the webhook to be called", func() bool {
		return cluster.Create(t.Context(), newScheduleOf(ns, "invalid", func(spec *v1alpha1.ScheduleSpec) { spec.Schedule = "never" }), client.DryRunAll) != nil
	})
	s.change(func(spec *v1alpha1.ScheduleSpec) { spec.Suspend = true })
	s.waitForReady(metav1.ConditionTrue, v1alpha1.ReasonSuspended)
	before := s.read().DeepCopy()
	s.s.Spec.SequentialJob.Metadata = &v1alpha1.ObjectMetadata{Labels: map[string]string{"team": "etl"}}
	err := cluster.Patch(t.Context(), s.s, client.MergeFrom(before))
	require.True(t, err != nil && strings.Contains(err.Error(), "its runs would be refused"), "a change of the template: %v", err)
}

// ofJobs makes a Schedule send jobs to Queue billing.
func ofJobs(spec *v1alpha1.ScheduleSpec) {
	spec.SequentialJob = nil
	spec.Message = &v1alpha1.ScheduledMessage{
		QueueRef: v1alpha1.LocalReference{Name: "billing"}, Kind: "invoice", Payload: &apiextensionsv1.JSON{Raw: []byte(`{"all":true}`)}, Headers: map[string]string{"Tenant": "acme"},
	}
}

func (e *queueEnv) messagesOf(name string) []*jetstream.RawStreamMsg {
	e.t.Helper()
	stream, err := e.JetStream().Stream(e.t.Context(), e.streamName(name))
	require.NoError(e.t, err)
	info, err := stream.Info(e.t.Context())
	require.NoError(e.t, err)
	var all []*jetstream.RawStreamMsg
	for sequence := max(info.State.FirstSeq, 1); sequence <= info.State.LastSeq; sequence++ {
		message, err := stream.GetMsg(e.t.Context(), sequence)
		require.NoError(e.t, err)
		all = append(all, message)
	}
	return all
}

func TestADueScheduleSendsAJobToItsQueueOnceItIsReady(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	s := createSchedule(t, e.ns, ofJobs)
	s.makeDue(1)
	s.waitForReady(metav1.ConditionFalse, v1alpha1.ReasonQueueNotFound)
	e.createQueue("billing", "")
	status := s.waitUntil("the job to be counted", func(s *v1alpha1.Schedule) bool { return s.Status.Runs == 1 }).Status
	s.waitForReady(metav1.ConditionTrue, v1alpha1.ReasonScheduled)
	messages := e.messagesOf("billing")
	require.True(t, len(messages) == 1 && status.Missed == 0, "%d messages, %d missed", len(messages), status.Missed)
	due := status.LastScheduleTime.Time
	for header, want := range map[string]string{
		"Yardmaster-Kind": "invoice", "Tenant": "acme", "Content-Type": "application/json",
		"Scheduled-Time": due.UTC().Format(time.RFC3339), "Nats-Msg-Id": schedule.RunName(s.s, due),
	} {
		assert.Equal(t, header, want, messages[0].Header.Get(header))
	}
	require.True(t, string(messages[0].Data) == `{"all":true}`, "payload %s", messages[0].Data)
}

func yesterday(hour int) *metav1.Time {
	day := time.Now().UTC().AddDate(0, 0, -1).Truncate(24 * time.Hour)
	return new(metav1.NewTime(day.Add(time.Duration(hour) * time.Hour)))
}

// waitForRunOf waits for the only active run, and returns it if it is of this time.
func (s *scheduleTest) waitForRunOf(due *metav1.Time) *sequenceTest {
	var name string
	s.waitUntil("a run of "+due.UTC().Format(time.RFC3339), func(s *v1alpha1.Schedule) bool {
		if len(s.Status.ActiveRuns) != 1 || !s.Status.ActiveRuns[0].ScheduledTime.Equal(due) {
			return false
		}
		name = s.Status.ActiveRuns[0].Name
		return true
	})
	runs := s.runs()
	i := slices.IndexFunc(runs, func(run v1alpha1.SequentialJob) bool { return run.Name == name })
	require.True(s.t, i >= 0, "no run %s", name)
	return &sequenceTest{s.t, &runs[i]}
}

func TestARequestedRunHasItsTimeAndItsFailureStopsTheSchedule(t *testing.T) {
	t.Parallel()
	s := createSchedule(t, namespace(t), func(spec *v1alpha1.ScheduleSpec) {
		spec.Schedule, spec.SuspendAfterFailures = "0 3 29 2 *", new(int32(1)) // not due during the test
	})
	_, isCounted := testenv.MetricValues(t, "yardmaster_schedule_runs_finished_total")[s.s.Namespace+",failed,nightly"]
	require.True(t, isCounted, "the counter of failed runs does not exist before the first one")
	s.change(func(spec *v1alpha1.ScheduleSpec) {
		spec.Rerun = &v1alpha1.ScheduleRerun{Rerun: v1alpha1.Rerun{ID: "first"}, From: yesterday(9)}
	})
	run := s.waitForRunOf(yesterday(9))
	want := corev1.EnvVar{Name: "SCHEDULED_TIME", Value: yesterday(9).UTC().Format(time.RFC3339)}
	env := run.waitForPod("load").Spec.Containers[0].Env
	require.True(t, slices.Contains(env, want), "environment of the step: %v", env)
	got := run.sj.Annotations
	require.True(t, got[v1alpha1.AnnotationRerunID] == "first" && got[v1alpha1.AnnotationScheduledTime] == want.Value, "annotations %v", got)
	run.endStep("load", 1, "")
	s.waitForReady(metav1.ConditionFalse, v1alpha1.ReasonTooManyFailures)
}

// newReviewSchedule returns a Schedule of sessions whose template claims to be root's.
func newReviewSchedule(ns, name string) *v1alpha1.Schedule {
	return newScheduleOf(ns, name, func(spec *v1alpha1.ScheduleSpec) {
		spec.SequentialJob = nil
		spec.AgenticSession = &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: []byte(`{"prompt": "review", "userContext": {"userID": "root"}}`)}}
	})
}

func patchSchedule(t *testing.T, c client.Client, s *v1alpha1.Schedule, patch string) {
	t.Helper()
	require.NoError(t, c.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func wantOwner(t *testing.T, s *v1alpha1.Schedule, want string) {
	t.Helper()
	run, err := schedule.NewRun(s, &v1alpha1.ScheduledRun{Name: "run", ScheduledTime: &s.CreationTimestamp})
	require.NoError(t, err)
	session := &v1alpha1.AgenticSession{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(run.Object, session))
	require.True(t, session.Spec.UserContext != nil && session.Spec.UserContext.UserID == want,
		"the sessions belong to %+v, want %s", session.Spec.UserContext, want)
}

// testTemplateOwners checks that only a change of the template changes whose sessions they are.
func testTemplateOwners(t *testing.T, s *v1alpha1.Schedule) {
	t.Helper()
	ann, bob := clientOf(t, "ann"), clientOf(t, "bob")
	require.NoError(t, ann.Create(t.Context(), s))
	wantOwner(t, s, "ann")
	patchSchedule(t, bob, s, `{"spec": {"successfulRunsHistoryLimit": 2}}`)
	wantOwner(t, s, "ann")
	patchSchedule(t, bob, s, `{"spec": {"agenticSession": {"spec": {"userContext": null}}}}`) // as an applied manifest
	wantOwner(t, s, "ann")
	patchSchedule(t, bob, s, `{"spec": {"agenticSession": {"spec": {"prompt": "delete all", "userContext": null}}}}`)
	wantOwner(t, s, "bob")
	patchSchedule(t, bob, s, `{"spec": {"agenticSession": {"spec": {"userContext": {"userID": "ann"}}}}}`)
	wantOwner(t, s, "bob")
}

func TestScheduledSessionsBelongToTheUserWhoLastChangedTheirTemplate(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	createIfMissing(t, newUnschedulableRunner(t, ns))
	testTemplateOwners(t, newReviewSchedule(ns, "changes"))

	s := newReviewSchedule(ns, "review")
	require.NoError(t, clientOf(t, "ann").Create(t.Context(), s))
	test := &scheduleTest{t, s}
	test.waitUntil("the first observation", func(s *v1alpha1.Schedule) bool { return s.Status.Timetable != nil })
	test.makeDue(1)
	session := &v1alpha1.AgenticSession{}
	poll.Until(t, "the session", func() bool {
		last := test.read().Status.LastScheduleTime
		return last != nil && cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: schedule.RunName(s, last.Time)}, session) == nil
	})
	if session.Spec.UserContext == nil || session.Spec.UserContext.UserID != "ann" || session.Spec.EnvironmentVariables["SCHEDULED_TIME"] == "" {
		t.Errorf("the session has the user %+v and the environment %v", session.Spec.UserContext, session.Spec.EnvironmentVariables)
	}
}

func TestOnlyTheOperatorCreatesSessionsOfAnotherUser(t *testing.T) {
	t.Parallel()
	s := newReviewSchedule(namespace(t), "review")
	mustCreate(t, s)
	wantRunOf(t, s, "forged", "ann", "ann")
}

// wantRunOf creates a session of a Schedule for root as a user, and checks whose it is.
func wantRunOf(t *testing.T, s *v1alpha1.Schedule, name, user, want string) {
	t.Helper()
	session := sessionWithSpec(s.Namespace, name, map[string]any{"prompt": "do it", "userContext": map[string]any{"userID": "root"}})
	session.SetOwnerReferences(decision.ControllerReferences("Schedule", s))
	require.NoError(t, clientOf(t, user).Create(t.Context(), session))
	stored := mustGet(t, client.ObjectKeyFromObject(session), &v1alpha1.AgenticSession{})
	require.Equal(t, &v1alpha1.UserContext{UserID: want}, stored.Spec.UserContext)
}

func TestAdmissionPolicyRecordsTheOwnerOfScheduledSessions(t *testing.T) {
	const policyLabel = "test.yardmaster.dev/schedule-policy"
	installAdmissionPolicy(t, policyLabel)
	ns := newNamespace(t, map[string]string{testenv.WebhookLabel: "off", policyLabel: "on"})
	poll.Until(t, "the policies to be effective", func() bool {
		s := newReviewSchedule(ns, "effective")
		session := sessionWithSpec(ns, "effective", map[string]any{"prompt": "do it"})
		if err := errors.Join(cluster.Create(t.Context(), s, client.DryRunAll), cluster.Create(t.Context(), session, client.DryRunAll)); err != nil {
			t.Log(err) // for a while, policies do not know a new kind
			return false
		}
		return !strings.Contains(string(s.Spec.AgenticSession.Spec.Raw), `"root"`) && session.Object["spec"].(map[string]any)["userContext"] != nil
	})
	s := newReviewSchedule(ns, "review")
	testTemplateOwners(t, s)
	wantRunOf(t, s, "by-the-operator", "system:serviceaccount:default:yardmaster", "root")
	wantRunOf(t, s, "by-a-tenant", "system:serviceaccount:default:default", "system:serviceaccount:default:default")
}
