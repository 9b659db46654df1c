package integration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	yardmaster "github.com/yardmaster/yardmaster/applyconfiguration/api/v1alpha1"
	"github.com/yardmaster/yardmaster/clientset"
	typed "github.com/yardmaster/yardmaster/clientset/typed/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

func TestStepsAreStoredAsApplied(t *testing.T) {
	t.Parallel()
	applied := newManifest(t, "SequentialJob", namespace(t), "applied", `{suspend: true, containers: [
		{name: build, image: "registry.example/build:1", step: {outputs: true}},
		{name: test, image: "registry.example/test:1", step: {podTemplate: {spec: {nodeSelector: {pool: gpu}}}}}]}`)
	stored := applied.DeepCopy()
	mustCreate(t, stored)
	want, _, _ := unstructured.NestedSlice(applied.Object, "spec", "containers")
	got, _, _ := unstructured.NestedSlice(stored.Object, "spec", "containers")
	for i := range got {
		step := got[i].(map[string]any)
		delete(step, "resources") // of the generated schema: an empty object
		require.True(t, reflect.DeepEqual(step, want[i]), "step %d is stored as %v, applied was %v", i, step, want[i])
	}
}

// TestOnlyApproversApproveInTheirOwnName crosses users with ways to set, change, copy and remove an approval.
func TestOnlyApproversApproveInTheirOwnName(t *testing.T) {
	t.Parallel()
	waitForAdmissionPolicies(t)
	s := createSequence(t, testbuilder.SequentialJob("release", "").
		Step("deploy", testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.RequireApproval = true })).Obj())
	s.waitUntil("the step to wait", func(sj *v1alpha1.SequentialJob) bool { return sj.Status.Reason == v1alpha1.ReasonApprovalRequired })
	edit := []string{"yardmaster-session-view", "yardmaster-session-edit", "yardmaster-sequentialjob-view", "yardmaster-sequentialjob-edit"}
	editor := clientWithRoles(t, s.sj.Namespace, "editor", edit...)
	approver := clientWithRoles(t, s.sj.Namespace, "approver", append(edit, "yardmaster-sequentialjob-approve")...)
	approvalBy := func(user string) string {
		copied := s.sj.DeepCopy()
		approval := sequentialjob.Approval{SequenceApproval: *s.sj.Status.Approval, By: user}
		require.NoError(t, approval.Write(copied))
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": copied.Annotations}})
		require.NoError(t, err)
		return string(raw)
	}
	poll.Until(t, "the policy about approvals to apply", func() bool {
		return apierrors.IsForbidden(s.patchAs(editor, approvalBy("editor"), client.DryRunAll))
	})
	for name, test := range map[string]struct {
		client  client.Client
		body    string
		allowed bool
	}{
		"by an approver":                    {approver, approvalBy("approver"), true},
		"by an approver for another":        {approver, approvalBy("editor"), false},
		"by an approver for nobody":         {approver, approvalBy(""), false},
		"by an editor":                      {editor, approvalBy("editor"), false},
		"by an editor as the approver":      {editor, approvalBy("approver"), false},
		"only the name":                     {editor, `{"metadata": {"annotations": {"yardmaster.dev/approved-by": "approver"}}}`, false},
		"only the content":                  {editor, `{"metadata": {"annotations": {"yardmaster.dev/approval": "{}"}}}`, false},
		"another annotation":                {editor, `{"metadata": {"annotations": {"example.com/a": "b"}}}`, true},
		"the status through the main path":  {editor, `{"status": {"steps": [{"name": "deploy", "phase": "Succeeded"}]}}`, true}, // which ignores it
		"a change of the spec by an editor": {editor, `{"spec": {"containers": [{"name": "deploy", "image": "other", "step": {"requireApproval": true}}]}}`, true},
	} {
		if err := s.patchAs(test.client, test.body, client.DryRunAll); (err == nil) != test.allowed || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	require.Equal(t, 0, len(s.listJobs()))
	require.NoError(t, s.patchAs(approver, approvalBy("approver")))
	s.waitForJob("deploy")
	s.waitUntil("the approval", func(*v1alpha1.SequentialJob) bool { return s.stepStatus("deploy").ApprovedBy == "approver" })

	// A restored or copied object has the approval of another one.
	copied := createSequenceIn(t, s.sj.Namespace, &v1alpha1.SequentialJob{
		ObjectMeta: metav1.ObjectMeta{Name: "copied", Annotations: s.readSequence().Annotations}, Spec: *s.sj.Spec.DeepCopy(),
	})
	copied.waitUntil("the step to wait", func(sj *v1alpha1.SequentialJob) bool { return sj.Status.Reason == v1alpha1.ReasonApprovalRequired })
	wantAllowed(t, "an editor withdraws an approval", copied.patchAs(editor, `{"metadata": {"annotations": {"yardmaster.dev/approval": null, "yardmaster.dev/approved-by": null}}}`))
	require.Equal(t, 0, len(copied.listJobs()))
}

// sequenceTest follows one SequentialJob. Its Pods run until the test ends them.
type sequenceTest struct {
	t  *testing.T
	sj *v1alpha1.SequentialJob
}

func (s *sequenceTest) patchAs(c client.Client, body string, o ...client.PatchOption) error {
	return c.Patch(s.t.Context(), s.sj.DeepCopy(), client.RawPatch(mergePatch, []byte(body)), o...)
}

func TestArchiveThatIsInvalidIsRefused(t *testing.T) {
	t.Parallel()
	archive := func(fields string) string { return `{containers: [{name: a, image: a}], archive: {` + fields + `}}` }
	s3 := func(endpoint string) string {
		return `s3: {endpoint: "` + endpoint + `", bucket: abc, secretRef: {name: s}}, serviceAccountName: logs`
	}
	assertSpecsRefused(t, "SequentialJob", []invalidSpec{
		{"no storage", archive(`serviceAccountName: logs`), "set exactly one of claimRef and s3"},
		{"two storages", archive(`claimRef: {name: a}, ` + s3("https://a")), "set exactly one of claimRef and s3"},
		{"no ServiceAccount", archive(`claimRef: {name: a}`), "spec.archive.serviceAccountName: "},
		{"an invalid ServiceAccount", archive(`claimRef: {name: a}, serviceAccountName: Not ok`), "spec.archive.serviceAccountName: "},
		{"an invalid endpoint", archive(s3("a")), "spec.archive.s3.endpoint: "},
	})
}

// createMutatingPolicy creates a policy of the cluster that changes each new Job of a namespace. It returns when the policy has an
// effect, and skips the test where the API server does not have the kind.
func createMutatingPolicy(t *testing.T, ns, expression string, changes func() bool) {
	if !hasMutatingAdmissionPolicies(t) {
		t.Skipf("Kubernetes %s has no MutatingAdmissionPolicy", serverVersion())
	}
	for _, object := range testenv.Decode(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [batch], apiVersions: [v1], operations: [CREATE], resources: [jobs]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: %[2]q}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec:
  policyName: %[1]s
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}}
`, ns, expression)) {
		mustCreate(t, object)
	}
	poll.Until(t, "the policy to have an effect", changes)
}

func TestOutcomesSurviveATimeToLiveOfZero(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	createMutatingPolicy(t, ns, "Object{spec: Object.spec{ttlSecondsAfterFinished: 0}}", func() bool {
		probe := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: ns}}
		probe.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "a", Image: "a"}}}
		return cluster.Create(t.Context(), probe, client.DryRunAll) == nil && probe.Spec.TTLSecondsAfterFinished != nil
	})
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			s := createSequenceIn(t, ns, testbuilder.SequentialJob(fmt.Sprint("etl-", i), "").
				Step("extract", testbuilder.RecordOutput()).Step("check", testbuilder.ContinueOnFailure()).Step("load", testbuilder.RecordOutput()).Obj())
			s.endStep("extract", 0, "42")
			s.endStep("check", 3, "no rows")
			s.endStep("load", 0, "43")
			s.waitForPhase(v1alpha1.PhaseCompleted)
			extract, check, load := s.stepStatus("extract"), s.stepStatus("check"), s.stepStatus("load")
			if extract.Output != "42" || load.Output != "43" || check.ExitCode == nil || *check.ExitCode != 3 || !strings.Contains(check.Message, "no rows") {
				t.Errorf("outputs %q and %q, %+v", extract.Output, load.Output, check)
			}
		})
	}
}

// The translations of examples of Argo Workflows and Tekton are applied with strict field validation, in a namespace
// that enforces the Pod Security Standard, if they claim to satisfy it, and run to their end with simulated Pods.
func TestTranslatedExamplesRun(t *testing.T) {
	t.Parallel()
	files := examples(t, "sequentialjob/*/*.yaml")
	require.True(t, len(files) >= 12, "%d examples", len(files))
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(filepath.Join(filepath.Base(filepath.Dir(file)), name), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			labels := map[string]string{}
			if strings.Contains(string(raw), "securityProfile: Restricted") {
				labels["pod-security.kubernetes.io/enforce"] = "restricted"
			}
			manifest, err := decode(raw)
			require.NoError(t, err)
			manifest.SetNamespace(newNamespace(t, labels))
			var warnings warningList
			require.NoError(t, apply(t.Context(), strictClient(t, &warnings), manifest, false))
			s := &sequenceTest{t: t, sj: &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Namespace: manifest.GetNamespace(), Name: name}}}
			s.waitUntil("the end of the run", func(sj *v1alpha1.SequentialJob) bool {
				if step := sequentialjob.AwaitingApproval(sj); step != "" {
					s.approve()
				}
				return sequentialjob.IsFinished(&sj.Status)
			})
			if s.sj.Status.Phase != v1alpha1.PhaseCompleted {
				t.Error(describe(s.sj))
			}
		})
	}
}

// approve approves the step that waits, as an administrator.
func (s *sequenceTest) approve() {
	s.t.Helper()
	const user = "ada"
	approved := s.sj.DeepCopy()
	approval := sequentialjob.Approval{SequenceApproval: *s.sj.Status.Approval, By: user}
	require.NoError(s.t, approval.Write(approved))
	require.NoError(s.t, clientOf(s.t, user).Patch(s.t.Context(), approved, client.MergeFrom(s.sj.DeepCopy())))
}

// Jobs are identified by their controller, not by labels.
func TestJobsOfOthersWithTheOperatorsLabelsAreKept(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("labels", "").Step("a").Obj())
	mine := s.waitForJob("a")
	unrelated := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "unrelated", Namespace: mine.Namespace, Labels: mine.Labels}}
	unrelated.Spec.Template = corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "a", Image: "registry.example/a:1"}},
	}}
	unrelated.Spec.Template.Annotations = map[string]string{simDuration: "1h"}
	mustCreate(t, unrelated)
	mustDelete(t, s.sj)
	s.waitUntilDeleted(s.sj)
	err := cluster.Get(t.Context(), client.ObjectKeyFromObject(unrelated), unrelated)
	require.True(t, err == nil && unrelated.DeletionTimestamp.IsZero(), "the unrelated Job was deleted: %v", err)
}

// The cache of an operator that has just become the leader can show a Job as running that has ended. Deleting it would delete its log.
func TestAJobThatChangedSinceItWasReadIsNotDeleted(t *testing.T) {
	t.Parallel()
	job := newSuspendedJob(namespace(t))
	job.Name = "changed"
	mustCreate(t, job)
	read := job.DeepCopy()
	mustPatch(t, job, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"a":"b"}}}`)))
	err := kube.DeleteVersion(t.Context(), cluster, read, metav1.DeletePropagationForeground)
	require.True(t, apierrors.IsConflict(err), "error %v, want a conflict", err)
	err = cluster.Get(t.Context(), client.ObjectKeyFromObject(job), job)
	require.True(t, err == nil && job.DeletionTimestamp == nil, "the Job: %v, deleted at %v", err, job.DeletionTimestamp)
	require.NoError(t, kube.DeleteVersion(t.Context(), cluster, job, metav1.DeletePropagationForeground))
	poll.Until(t, "the Job to be deleted", func() bool {
		return apierrors.IsNotFound(cluster.Get(t.Context(), client.ObjectKeyFromObject(job), &batchv1.Job{}))
	})
}

// One program uses the clientset, and another one controller-runtime.
func TestProgramsApplyTheirOwnFieldsOfASequentialJob(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	programs, err := clientset.NewForConfig(config)
	require.NoError(t, err)
	sequences, billing := programs.YardmasterV1alpha1().SequentialJobs(ns), metav1.ApplyOptions{FieldManager: "billing"}
	report := yardmaster.SequentialJob("report", ns).WithSpec(yardmaster.SequentialJobSpec().
		WithActiveDeadlineSeconds(600).
		WithTemplate(yardmaster.PodTemplate().WithAnnotations(map[string]string{simDuration: "1h"}).
			WithSecurityProfile(v1alpha1.SecurityRestricted)).
		WithContainers(yardmaster.Step().WithName("report").WithImage("app:1").
			WithStep(yardmaster.StepOptions().WithBackoffLimit(2))))
	_, err = sequences.Apply(t.Context(), report, billing)
	require.NoError(t, err)
	wantFieldsOfManager(t, sequences, "billing", `{"f:spec": {"f:activeDeadlineSeconds": {}, "f:containers": {},
		"f:template": {"f:metadata": {"f:annotations": {"f:`+simDuration+`": {}}}, "f:securityProfile": {}}}}`)

	// Another program sets another field, and cannot change those of the first one unless it forces that.
	clean := func(spec *yardmaster.SequentialJobSpecApplyConfiguration) error {
		return cluster.Apply(t.Context(), yardmaster.SequentialJob("report", ns).WithSpec(spec), client.FieldOwner("cleaner"))
	}
	require.NoError(t, clean(yardmaster.SequentialJobSpec().WithTTLSecondsAfterFinished(3600)))
	wantFieldsOfManager(t, sequences, "cleaner", `{"f:spec": {"f:ttlSecondsAfterFinished": {}}}`)
	err = clean(yardmaster.SequentialJobSpec().WithTTLSecondsAfterFinished(3600).WithActiveDeadlineSeconds(60))
	require.True(t, apierrors.IsConflict(err), "a field of another program was changed: %v", err)

	// What a program no longer sets is removed; the fields of others remain.
	report.Spec.ActiveDeadlineSeconds = nil
	applied, err := sequences.Apply(t.Context(), report, billing)
	require.NoError(t, err)
	require.Equal[*int64](t, nil, applied.Spec.ActiveDeadlineSeconds)
	require.Equal(t, new(int32(3600)), applied.Spec.TTLSecondsAfterFinished)
}

func wantFieldsOfManager(t *testing.T, sequences typed.SequentialJobInterface, manager, want string) {
	t.Helper()
	sj, err := sequences.Get(t.Context(), "report", metav1.GetOptions{})
	require.NoError(t, err)
	for _, entry := range sj.ManagedFields {
		if entry.Manager != manager {
			continue
		}
		var got, wanted any
		require.NoError(t, json.Unmarshal(entry.FieldsV1.GetRawBytes(), &got))
		require.NoError(t, json.Unmarshal([]byte(want), &wanted))
		assert.Equal(t, "fields of "+manager, wanted, got)
		return
	}
	t.Errorf("%s owns no fields of %s", manager, sj.Name)
}

// reportTime is the time within which a step's message names what keeps its Pod from running.
const reportTime = 5 * time.Second

// TestClassesOfErrorsOfTheAPIServer has the other causes for which the API server refuses a Pod.
func TestMessageSaysWithinSecondsWhyAStepDoesNotRun(t *testing.T) {
	t.Parallel()
	claim := `{"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]}}`
	for name, test := range map[string]struct{ template, wantReason, wantText string }{
		"image": {`{"metadata": {"annotations": {"` + simStuck + `": "true"}}}`, v1alpha1.ReasonImagePull, "container a: ImagePullBackOff"},
		"nodes": {`{"spec": {"nodeSelector": {"none": "such"}}}`, corev1.PodReasonUnschedulable, "node"},
		"gate":  {`{"spec": {"schedulingGates": [{"name": "example.com/gate"}]}}`, corev1.PodReasonSchedulingGated, "SchedulingGated"},
		"claim": {claim, corev1.PodReasonUnschedulable, `"missing" not found`},
		// The dry run shows the cause, so no Job is created.
		"account": {`{"spec": {"serviceAccountName": "missing"}}`, v1alpha1.ReasonPodNotCreated, `serviceaccount "missing" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sj := testbuilder.SequentialJob(name, "").Step("a").Template(corev1.PodTemplateSpec{}).Obj()
			require.NoError(t, json.Unmarshal([]byte(test.template), sj.Spec.Template))
			s := createSequence(t, sj)
			since, wantPhase, isRefused := s.sj.CreationTimestamp, v1alpha1.StepPending, test.wantReason == v1alpha1.ReasonPodNotCreated
			if !isRefused {
				since, wantPhase = s.waitForJob("a").CreationTimestamp, v1alpha1.StepStarting
			}
			s.waitUntil("the reason", func(sj *v1alpha1.SequentialJob) bool {
				return len(sj.Status.Steps) > 0 && s.stepStatus("a").Reason == test.wantReason
			})
			assertWithin(t, "the reason is reported", reportTime+time.Second, since.Time) // a second of rounding
			step := s.stepStatus("a")
			require.True(t, step.Phase == wantPhase && strings.Contains(step.Message, test.wantText),
				"phase %s and message %q, want %s and a message with %q", step.Phase, step.Message, wantPhase, test.wantText)
			s.wantBlocked(test.wantReason)
			if isRefused {
				require.Equal(t, 0, len(s.listJobs()))
			} else {
				s.correct()
			}
		})
	}
}

// correct removes what keeps step a from starting, and changes its image, by a patch of the spec.
func (s *sequenceTest) correct() {
	const corrected = "registry.example/a:2"
	first := s.waitForJob("a")
	before := s.readSequence().DeepCopy()
	delete(s.sj.Spec.Template.Annotations, simStuck)
	s.sj.Spec.Template.Spec, s.sj.Spec.Containers[0].Image = corev1.PodSpec{}, corrected
	mustPatch(s.t, s.sj, client.MergeFrom(before))
	s.waitUntil("the next attempt", func(*v1alpha1.SequentialJob) bool { return s.stepStatus("a").Attempt == 2 })
	s.wantEvent(v1alpha1.EventJobReplaced)
	s.succeedStep("a")
	s.waitForPhase(v1alpha1.PhaseCompleted)
	if job := s.waitForJob("a"); job.UID == first.UID || job.Spec.Template.Spec.Containers[0].Image != corrected {
		s.t.Errorf("a ran %s in Job %s", job.Spec.Template.Spec.Containers[0].Image, job.Name)
	}
}

// wantBlocked checks that the condition, the reason of the status and an event say what blocks the run.
func (s *sequenceTest) wantBlocked(reason string) {
	s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, reason)
	s.wantCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, reason)
	require.True(s.t, s.sj.Status.Reason == reason, "the status has the reason %q, want %q", s.sj.Status.Reason, reason)
	if message := meta.FindStatusCondition(s.sj.Status.Conditions, v1alpha1.ConditionBlocked).Message; !strings.Contains(message, "; ") {
		s.t.Errorf("message %q does not say what to do", message)
	}
	s.wantEvent(v1alpha1.EventBlocked)
}

// Annotations that control Pods on the simulated nodes.
const (
	simDuration = "sim.localcluster.dev/duration"
	simStuck    = "sim.localcluster.dev/stuck"
)

func createSequence(t *testing.T, sj *v1alpha1.SequentialJob) *sequenceTest {
	t.Helper()
	return createSequenceIn(t, namespace(t), sj)
}

func createSequenceIn(t *testing.T, ns string, sj *v1alpha1.SequentialJob) *sequenceTest {
	t.Helper()
	sj.ObjectMeta = metav1.ObjectMeta{Name: sj.Name, Namespace: ns}
	if sj.Spec.Template == nil {
		sj.Spec.Template = &v1alpha1.PodTemplate{}
	}
	if sj.Spec.Template.Annotations == nil {
		sj.Spec.Template.Annotations = map[string]string{}
	}
	if sj.Spec.Template.Annotations[simDuration] == "" {
		sj.Spec.Template.Annotations[simDuration] = "1h"
	}
	mustCreate(t, sj)
	return &sequenceTest{t: t, sj: sj}
}

func (s *sequenceTest) readSequence() *v1alpha1.SequentialJob {
	s.t.Helper()
	mustGet(s.t, client.ObjectKeyFromObject(s.sj), s.sj)
	return s.sj
}

func (s *sequenceTest) waitUntil(what string, condition func(sj *v1alpha1.SequentialJob) bool) {
	s.t.Helper()
	if err := poll.UntilNil(s.t.Context(), func() error {
		if !condition(s.readSequence()) {
			return fmt.Errorf("the status is\n%s", describe(s.sj))
		}
		return nil
	}); err != nil {
		s.t.Fatalf("waiting for %s: %v", what, err)
	}
}

func describe(sj *v1alpha1.SequentialJob) string {
	var b strings.Builder
	fmt.Fprintf(&b, "phase %s, %s\n", sj.Status.Phase, sequentialjob.FormatProgress(sj, false))
	for _, c := range sj.Status.Conditions {
		fmt.Fprintf(&b, "  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	for _, step := range sj.Status.Steps {
		fmt.Fprintf(&b, "  %s %s %s %s %s\n", step.Name, step.Phase, step.JobName, step.Reason, step.Message)
	}
	return b.String()
}

func (s *sequenceTest) waitForPhase(phase v1alpha1.SequentialJobPhase) {
	s.t.Helper()
	s.waitUntil("phase "+string(phase), func(sj *v1alpha1.SequentialJob) bool { return sj.Status.Phase == phase })
}

// stepStatus returns the last read status of a step.
func (s *sequenceTest) stepStatus(name string) *v1alpha1.StepStatus {
	for i := range s.sj.Status.Steps {
		if s.sj.Status.Steps[i].Name == name {
			return &s.sj.Status.Steps[i]
		}
	}
	return &v1alpha1.StepStatus{}
}

// listJobs returns the Jobs of the SequentialJob, oldest first.
func (s *sequenceTest) listJobs() []batchv1.Job {
	s.t.Helper()
	var list batchv1.JobList
	require.NoError(s.t, cluster.List(s.t.Context(), &list, client.InNamespace(s.sj.Namespace)))
	owned := slices.DeleteFunc(list.Items, func(job batchv1.Job) bool { return !metav1.IsControlledBy(&job, s.sj) })
	slices.SortFunc(owned, func(a, b batchv1.Job) int {
		return cmp.Or(
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			decision.CompareTrueFirst(sequentialjob.IsTerminal(&a), sequentialjob.IsTerminal(&b)), // an attempt after an interrupted attempt
			cmp.Compare(a.Annotations[v1alpha1.AnnotationRun], b.Annotations[v1alpha1.AnnotationRun]),
		)
	})
	return owned
}

// waitForJob waits for a step's Job, that of the latest run.
func (s *sequenceTest) waitForJob(step string) *batchv1.Job {
	s.t.Helper()
	var found *batchv1.Job
	poll.Until(s.t, "the Job of step "+step, func() bool {
		for _, job := range s.listJobs() {
			if job.Labels[v1alpha1.LabelStep] == step && job.DeletionTimestamp.IsZero() {
				found = &job
			}
		}
		return found != nil
	})
	return found
}

func (s *sequenceTest) waitForPod(step string) *corev1.Pod {
	s.t.Helper()
	var pods corev1.PodList
	poll.Until(s.t, "a running Pod of step "+step, func() bool {
		job := s.waitForJob(step) // each time: an attempt is recorded before its Job exists
		ofJob := client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)}
		require.NoError(s.t, cluster.List(s.t.Context(), &pods, client.InNamespace(job.Namespace), ofJob))
		pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
			return pod.Status.Phase != corev1.PodRunning || !pod.DeletionTimestamp.IsZero()
		})
		return len(pods.Items) > 0
	})
	return &pods.Items[0]
}

// endStep ends the Pod of a step, as a kubelet would report it.
func (s *sequenceTest) endStep(step string, exitCode int32, message string) {
	s.t.Helper()
	pod := s.waitForPod(step)
	before := pod.DeepCopy()
	endContainers(pod, exitCode, message)
	require.NoError(s.t, cluster.Status().Patch(s.t.Context(), pod, client.MergeFrom(before)))
}

// endContainers changes the status of a Pod as a kubelet does when all its containers end.
func endContainers(pod *corev1.Pod, exitCode int32, message string) {
	phase, reason := corev1.PodSucceeded, "Completed"
	if exitCode != 0 {
		phase, reason = corev1.PodFailed, "Error"
	}
	pod.Status.Phase, pod.Status.ContainerStatuses = phase, nil
	end := &corev1.ContainerStateTerminated{ExitCode: exitCode, Reason: reason, Message: message, StartedAt: metav1.Now(), FinishedAt: metav1.Now()}
	for i := range pod.Spec.Containers {
		ended := corev1.ContainerStatus{Name: pod.Spec.Containers[i].Name, State: corev1.ContainerState{Terminated: end}}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, ended)
	}
}

func (s *sequenceTest) succeedStep(step string) {
	s.t.Helper()
	s.endStep(step, 0, "")
	s.waitUntil("the end of step "+step, func(*v1alpha1.SequentialJob) bool { return s.stepStatus(step).Phase == v1alpha1.StepSucceeded })
}

// readCondition returns the last read status and reason of a condition.
func (s *sequenceTest) readCondition(kind string) (status metav1.ConditionStatus, reason string) {
	c := meta.FindStatusCondition(s.sj.Status.Conditions, kind)
	if c == nil {
		return "", ""
	}
	return c.Status, c.Reason
}

func (s *sequenceTest) wantCondition(kind string, wantStatus metav1.ConditionStatus, wantReason string) {
	s.t.Helper()
	status, reason := s.readCondition(kind)
	require.True(s.t, status == wantStatus && reason == wantReason, "condition %s is %s/%s, want %s/%s", kind, status, reason, wantStatus, wantReason)
}

func (s *sequenceTest) wantEvent(reason string) {
	s.t.Helper()
	poll.Until(s.t, "event "+reason, func() bool {
		var list eventsv1.EventList
		require.NoError(s.t, cluster.List(s.t.Context(), &list, client.InNamespace(s.sj.Namespace)))
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.UID == s.sj.UID && e.Reason == reason })
	})
}

func (s *sequenceTest) waitUntilDeleted(object client.Object) {
	s.t.Helper()
	poll.Until(s.t, object.GetName()+" to be deleted", func() bool {
		return apierrors.IsNotFound(cluster.Get(s.t.Context(), client.ObjectKeyFromObject(object), object))
	})
}

// A client of the API that names no propagation policy leaves the Pods of a Job behind.
func TestNoStepStartsBesideAPodThatADeletedJobLeft(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("left", "").Step("a").Finally("b").Obj())
	job, pods := s.waitForJob("a"), &corev1.PodList{}
	poll.Until(t, "a Pod", func() bool {
		return cluster.List(t.Context(), pods, client.InNamespace(job.Namespace)) == nil && len(pods.Items) == 1
	})
	mustDelete(t, job, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	poll.Until(t, "the Job to be gone", func() bool { return len(s.listJobs()) == 0 })
	createSequence(t, testbuilder.SequentialJob("other", "").Step("a").Obj()).waitForJob("a") // decided later
	require.Equal(t, 0, len(s.listJobs()))
	mustDelete(t, &pods.Items[0])
	s.endStep("b", 0, "")
	s.waitForPhase(v1alpha1.PhaseFailed)
}
