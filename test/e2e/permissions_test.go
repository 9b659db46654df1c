//go:build e2e

package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/permissions"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// secretValue is the content of a Secret in the tenants' namespace, which no tenant may read.
const (
	secretName  = "confidential"
	secretValue = "confidential-value"
)

// tenant is a user with one permission in one namespace.
type tenant struct {
	t      *testing.T
	client client.Client
}

// newTenant returns a user whose only permission is to create objects of one resource, as in
// "sequentialjobs.yardmaster.dev", in the tenants' namespace.
func newTenant(t *testing.T, resource string) *tenant {
	t.Helper()
	name, group, _ := strings.Cut(resource, ".")
	account := "system:serviceaccount:" + tenantNamespace + ":" + name + "-creator"
	grantRole(t, tenantNamespace, name+"-creator", rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{name}, Verbs: []string{"create"}})
	require.NoError(t, client.IgnoreAlreadyExists(cluster.Create(t.Context(), confidentialSecret())))
	poll.Until(t, "the user to have exactly one permission", func() bool {
		granted, err := permissions.OfServiceAccount(t.Context(), config, account, tenantNamespace)
		require.NoError(t, err)
		return slices.Equal(granted, []string{"create " + resource})
	})
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: account, Groups: permissions.Groups(account)}
	c, err := client.New(as, client.Options{Scheme: cluster.Scheme()})
	require.NoError(t, err)
	return &tenant{t, c}
}

func confidentialSecret() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secretName, Namespace: tenantNamespace},
		StringData: map[string]string{"url": secretValue},
	}
}

func tenantMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: tenantNamespace}
}

// create creates an object as the tenant, and checks that the tenant cannot create it elsewhere, nor read the Secret.
func (u *tenant) create(object client.Object) {
	u.t.Helper()
	elsewhere, _ := object.DeepCopyObject().(client.Object)
	elsewhere.SetNamespace(watchedNamespace)
	if err := u.client.Create(u.t.Context(), elsewhere); !apierrors.IsForbidden(err) {
		u.t.Errorf("creating it in another namespace: %v, want Forbidden", err)
	}
	if err := u.client.Get(u.t.Context(), client.ObjectKeyFromObject(confidentialSecret()), &corev1.Secret{}); !apierrors.IsForbidden(err) {
		u.t.Errorf("reading a Secret: %v, want Forbidden", err)
	}
	require.NoError(u.t, u.client.Create(u.t.Context(), object))
	deleteAtEnd(u.t, object)
}

// secretAsVariable makes a container read the Secret, as its author may: Kubernetes does not check
// whether the author of a Pod may read the Secrets that it names.
func secretAsVariable() corev1.EnvVar {
	return corev1.EnvVar{Name: "STOLEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secretName}, Key: "url",
	}}}
}

// newSecretReader returns a sequence whose step fails with the content of the Secret in its message.
func newSecretReader() *v1alpha1.SequentialJob {
	return prepareSequence(tenantNamespace, testbuilder.SequentialJob("reader", "").
		Step("read", shellScript(`echo "$STOLEN" > /dev/termination-log; exit 1`), testbuilder.ChangeContainer(func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{secretAsVariable()}
		})).Obj())
}

func testSequentialJobPermission(t *testing.T) {
	u := newTenant(t, "sequentialjobs.yardmaster.dev")
	s := &sequenceTest{t: t, sj: newSecretReader()}
	u.create(s.sj)
	s.waitForPhase(v1alpha1.PhaseFailed)
	message := s.stepStatus("read").Message
	require.True(t, strings.Contains(message, secretValue), "the step could not read the Secret: %q", message)

	// The namespace's Pod Security Standard applies to steps.
	s = &sequenceTest{t: t, sj: prepareSequence(tenantNamespace, testbuilder.SequentialJob("on-node", "").Step("escape", shellScript("true")).Obj())}
	s.sj.Spec.Template.Spec.HostNetwork = true
	u.create(s.sj)
	s.waitUntil("the Pod in the node's network to be rejected", func(sj *v1alpha1.SequentialJob) bool {
		blocked := meta.FindStatusCondition(sj.Status.Conditions, v1alpha1.ConditionBlocked)
		return blocked != nil && blocked.Status == metav1.ConditionTrue && strings.Contains(blocked.Message, "violates PodSecurity")
	})
	if jobs := s.listJobs(); len(jobs) > 0 {
		t.Errorf("Job %s was created", jobs[0].Name)
	}
}

// A Schedule runs sequences in the name of the operator, which has the permissions of an installation.
func testSchedulePermission(t *testing.T) {
	u := newTenant(t, "schedules.yardmaster.dev")
	spec, err := json.Marshal(newSecretReader().Spec)
	require.NoError(t, err)
	s := &v1alpha1.Schedule{ObjectMeta: tenantMeta("reader")}
	s.Spec.Schedule, s.Spec.ConcurrencyPolicy = "* * * * *", v1alpha1.ConcurrencyForbid
	s.Spec.SequentialJob = &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: spec}}
	u.create(s)
	var runs v1alpha1.SequentialJobList
	poll.Until(t, "a run to end", func() bool {
		require.NoError(t, cluster.List(t.Context(), &runs, client.InNamespace(s.Namespace), client.MatchingLabels{v1alpha1.LabelSchedule: s.Name}))
		return len(runs.Items) > 0 && runs.Items[0].Status.CompletionTime != nil
	})
	message := runs.Items[0].Status.Steps[0].Message
	require.True(t, strings.Contains(message, secretValue), "the step could not read the Secret: %q", message)
}

func testQueuePermission(t *testing.T) {
	env := newQueueEnv(t, tenantNamespace) // NATS, and the Secret broker
	u := newTenant(t, "queues.yardmaster.dev")
	newQueue := func(name, secret string) *v1alpha1.Queue {
		q := &v1alpha1.Queue{ObjectMeta: tenantMeta(name)}
		q.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
		q.Spec.Broker.URLSecretRef.Name = secret
		return q
	}
	u.create(newQueue("granted", "broker"))
	env.waitUntilQueueReady("granted")

	// The content of another Secret does not appear anywhere.
	u.create(newQueue("curious", secretName))
	q := &v1alpha1.Queue{}
	poll.Until(t, "the Queue with another Secret to be refused", func() bool {
		require.NoError(t, cluster.Get(t.Context(), client.ObjectKey{Namespace: tenantNamespace, Name: "curious"}, q))
		ready := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.ConditionReady)
		return ready != nil && ready.Status == metav1.ConditionFalse
	})
	for _, c := range q.Status.Conditions {
		require.True(t, !strings.Contains(c.Message, secretValue), "condition %s contains the Secret: %s", c.Type, c.Message)
	}
}

func testWorkerPoolPermission(t *testing.T) {
	env := newQueueEnv(t, tenantNamespace)
	u := newTenant(t, "workerpools.yardmaster.dev")
	wp := &v1alpha1.WorkerPool{ObjectMeta: tenantMeta("reader")}
	setFixedReplicas(wp, 1, 1)
	wp.Spec.Image, wp.Spec.Queues = busyboxImage, []v1alpha1.PoolQueue{{LocalReference: v1alpha1.LocalReference{Name: "orders"}}}
	wp.Spec.Drain = &v1alpha1.Drain{TerminationGrace: durationOfSeconds(1)} // the shell ignores SIGTERM
	wp.Spec.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(65532))},
		Containers: []corev1.Container{{
			Name: v1alpha1.WorkerContainer, Image: busyboxImage, Command: []string{"sh", "-c", `echo "read $STOLEN"; sleep 3600`}, Env: []corev1.EnvVar{secretAsVariable()},
		}},
	}}
	u.create(wp)
	poll.Until(env.t, "a worker to have read the Secret", func() bool {
		pods := podsWith(t, tenantNamespace, map[string]string{"yardmaster.dev/workerpool": "reader"})
		for i := range pods {
			logs, err := clientset.CoreV1().Pods(tenantNamespace).GetLogs(pods[i].Name, &corev1.PodLogOptions{Container: v1alpha1.WorkerContainer}).DoRaw(t.Context())
			if err == nil && strings.Contains(string(logs), "read "+secretValue) {
				return true
			}
		}
		return false
	})
}

// A Policy restricts others, and runs nothing.
func testPolicyPermission(t *testing.T) {
	u := newTenant(t, "policies.yardmaster.dev")
	selected := map[string]string{"team": "limited"}
	p := &v1alpha1.Policy{ObjectMeta: tenantMeta("limit")}
	p.Spec.Selector = &metav1.LabelSelector{MatchLabels: selected}
	p.Spec.Limits = &v1alpha1.PolicyLimits{AllowedImages: []string{"registry.invalid/*"}}
	u.create(p)
	wp := &v1alpha1.WorkerPool{ObjectMeta: tenantMeta("limited")}
	wp.Labels, wp.Spec.Image, wp.Spec.Queues = selected, busyboxImage, []v1alpha1.PoolQueue{{LocalReference: v1alpha1.LocalReference{Name: "none"}}}
	setFixedReplicas(wp, 0, 1)
	createUntilEnd(t, wp)
	poll.Until(t, "the pool to be refused for its image", func() bool {
		require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(wp), wp))
		ready := meta.FindStatusCondition(wp.Status.Conditions, v1alpha1.ConditionReady)
		return ready != nil && ready.Status == metav1.ConditionFalse && strings.Contains(ready.Message, "Policy")
	})
}

func testAgenticSessionPermission(t *testing.T) {
	createRunners(t, tenantNamespace)
	limited := &v1alpha1.SessionRunner{ObjectMeta: tenantMeta("limited")}
	limited.Spec.Image, testbuilder.RunnerPod(&limited.Spec).SecurityContext.RunAsUser = runnerImage, new(int64(65532))
	createUntilEnd(t, limited)
	u := newTenant(t, "agenticsessions.yardmaster.dev")
	newSession := func(name, runner string) *v1alpha1.AgenticSession {
		s := &v1alpha1.AgenticSession{ObjectMeta: tenantMeta(name)}
		s.Spec.Runner, s.Spec.Prompt = runner, "/write notes done"
		return s
	}
	granted := newSession("granted", echoRunner)
	u.create(granted)
	trackSession(t, granted).waitForPhase(v1alpha1.SessionCompleted)

	image := newSession("own-image", echoRunner)
	image.Spec.Image = busyboxImage
	secret := newSession("own-secret", "limited")
	secret.Spec.SecretMounts = []v1alpha1.SecretMount{{LocalReference: v1alpha1.LocalReference{Name: secretName}}}
	for _, refused := range []*v1alpha1.AgenticSession{image, secret} {
		u.create(refused)
		s := trackSession(t, refused)
		s.waitUntil("to be refused", func(status *v1alpha1.AgenticSessionStatus) bool {
			c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionBlocked)
			return c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonNotAllowed
		})
		require.True(t, s.s.Status.Attempt.JobName == "", "%s has a Job", refused.Name)
	}
}

// A SessionRunner says what sessions may do, and runs nothing.
func testSessionRunnerPermission(t *testing.T) {
	u := newTenant(t, "sessionrunners.yardmaster.dev")
	runner := &v1alpha1.SessionRunner{ObjectMeta: tenantMeta("wide")}
	runner.Spec.Image, testbuilder.RunnerPod(&runner.Spec).SecurityContext.RunAsUser = busyboxImage, new(int64(65532))
	testbuilder.RunnerContainer(&runner.Spec).Command = []string{"sh", "-c", "id -u > /dev/termination-log; exit 1"}
	u.create(runner)
	if err := u.client.Create(t.Context(), &v1alpha1.AgenticSession{
		ObjectMeta: tenantMeta("none"), Spec: v1alpha1.AgenticSessionSpec{Runner: "wide", Prompt: "none"},
	}); !apierrors.IsForbidden(err) {
		t.Errorf("creating a session: %v, want Forbidden", err)
	}
	// Together with the permission to create sessions it means any image, but never root.
	s := createSessionIn(t, tenantNamespace, "wide", "wide", "none", nil)
	s.waitUntil("to end", func(status *v1alpha1.AgenticSessionStatus) bool { return status.Phase == v1alpha1.SessionFailed })
	require.True(t, len(s.s.Status.Attempts) == 1 && strings.Contains(s.s.Status.Attempts[0].Message, "65532"),
		"the session ran as another user: %+v", s.s.Status.Attempts)
}

// The operator reads only the JobReport that it writes, and only where it reports.
func testJobReportPermission(t *testing.T) {
	u := newTenant(t, "jobreports.yardmaster.dev")
	forged := &v1alpha1.JobReport{ObjectMeta: tenantMeta("jobs")}
	forged.Status.Summary.Zombie = 7
	u.create(forged)
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(forged), forged))
	require.True(t, forged.Status.Summary.Zombie == 0, "a user without permission for the status forged a report")
}

// A Secret for brokers does nothing until a Queue, WorkerPool or Policy names it.
func testBrokerSecretPermission(t *testing.T) {
	u := newTenant(t, "secrets")
	secret := confidentialSecret()
	secret.Name, secret.Labels = "attractive", map[string]string{"yardmaster.dev/broker": "true"}
	u.create(secret)
	if err := u.client.Create(t.Context(), &v1alpha1.Queue{ObjectMeta: tenantMeta("none")}); !apierrors.IsForbidden(err) {
		t.Errorf("creating a Queue: %v, want Forbidden", err)
	}
	if err := u.client.Update(t.Context(), confidentialSecret()); !apierrors.IsForbidden(err) {
		t.Errorf("changing the Secret of an existing broker: %v, want Forbidden", err)
	}
}
