// Package endurance tests that many large objects do not fill the operator's memory. It needs the KUBECONFIG
// of a real API server, and no other operator may run there.
package endurance

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/plugin"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const (
	// memoryLimit and goMemoryLimit are those of config/manager/deployment.yaml.
	memoryLimit   = 256 << 20
	goMemoryLimit = "230MiB"
	// largestObject is the size of objects as JSON. With the managed fields, which repeat names, it is as much as the API server accepts.
	largestObject = 700_000
)

var cluster *testenv.Cluster

func TestMain(m *testing.M) { testenv.Main(m, "make test-integration", testenv.WithCRDs(&cluster)) }

// limitMemory returns a program that runs the operator in a control group, whose processes end when they need more memory than the
// limit. The pages of the operator's file count in its resident memory, but not in the limit, because the kernel can drop them.
func limitMemory(t *testing.T, binary string) string {
	group, limit := fmt.Sprintf("/sys/fs/cgroup/yardmaster-%d", os.Getpid()), "memory.max"
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil { // version 1
		group, limit = fmt.Sprintf("/sys/fs/cgroup/memory/yardmaster-%d", os.Getpid()), "memory.limit_in_bytes"
	}
	if err := os.Mkdir(group, 0o700); err != nil {
		t.Logf("The memory is not limited: %v", err)
		return binary
	}
	t.Cleanup(func() { require.NoError(t, os.Remove(group)) })
	if err := os.WriteFile(filepath.Join(group, limit), []byte(strconv.Itoa(memoryLimit)), 0o600); err != nil {
		t.Logf("The memory is not limited: %v", err)
		return binary
	}
	limited := filepath.Join(t.TempDir(), "operator")
	script := fmt.Sprintf("#!/bin/sh\necho $$ >%s/cgroup.procs && exec %s \"$@\"\n", group, binary)
	require.NoError(t, os.WriteFile(limited, []byte(script), 0o700))
	return limited
}

// recommendedQuota returns the quota of docs/security.md: the number of objects by resource.
func recommendedQuota(t *testing.T) map[string]int {
	quota := map[string]int{}
	for limit := range strings.SplitSeq(plugin.RecommendedQuota, ",") {
		resource, number, _ := strings.Cut(limit, "=")
		count, err := strconv.Atoi(number)
		require.NoError(t, err)
		quota[strings.TrimPrefix(resource, "count/")] = count
	}
	return quota
}

// attacks are the objects of a tenant by resource: an object, and a function that makes its spec as large as the API server accepts;
// nil if all fields of the spec are short.
var attacks = map[string]func(name string) (client.Object, func(bytes int)){
	"sequentialjobs.yardmaster.dev": func(name string) (client.Object, func(int)) {
		sj := testbuilder.SequentialJob(name, "").Step("a").Obj()
		sj.Spec.Suspend = true
		return sj, func(bytes int) {
			sj.Spec.Template = &v1alpha1.PodTemplate{}
			enlargePod(&sj.Spec.Template.Spec, bytes)
		}
	},
	"schedules.yardmaster.dev": func(string) (client.Object, func(int)) {
		s := &v1alpha1.Schedule{}
		s.Spec.Cron, s.Spec.Suspend = v1alpha1.Cron{Schedule: "0 0 1 1 *"}, true
		s.Spec.SequentialJob = &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: []byte(`{"containers":[{"name":"a","image":"a"}]}`)}}
		return s, func(bytes int) {
			s.Spec.SequentialJob.Spec.Raw = []byte(`{"containers":[{"name":"a","image":"a","args":["` + strings.Repeat("x", bytes) + `"]}]}`)
		}
	},
	"queues.yardmaster.dev": func(name string) (client.Object, func(int)) {
		return harness.Environment("").NewQueue(name), nil
	},
	"workerpools.yardmaster.dev": func(name string) (client.Object, func(int)) {
		pool := harness.Environment("").NewWorkerPool(name)
		return pool, func(bytes int) { enlargePod(&pool.Spec.Template.Spec, bytes) }
	},
	"policies.yardmaster.dev": func(string) (client.Object, func(int)) {
		p := &v1alpha1.Policy{}
		return p, func(bytes int) { p.Spec.Selector = &metav1.LabelSelector{MatchLabels: manyLabels(bytes)} }
	},
	"agenticsessions.yardmaster.dev": func(string) (client.Object, func(int)) {
		s := &v1alpha1.AgenticSession{}
		s.Spec.Prompt, s.Spec.Suspend = "do it", true
		return s, func(int) { s.Spec.Prompt = strings.Repeat("x", 60_000) }
	},
	"sessionrunners.yardmaster.dev": func(string) (client.Object, func(int)) {
		runner := &v1alpha1.SessionRunner{}
		runner.Spec.Image, testbuilder.RunnerPod(&runner.Spec).SecurityContext.RunAsUser = "runner:1", new(int64(65532))
		return runner, func(int) {
			for i := range 256 {
				source := v1alpha1.SessionSource{LocalReference: v1alpha1.LocalReference{Name: fmt.Sprintf("secret-%d", i)}}
				for key := range 64 {
					source.Keys = append(source.Keys, fmt.Sprintf("%02d-%s", key, strings.Repeat("x", 40)))
				}
				runner.Spec.Allowed.Secrets = append(runner.Spec.Allowed.Secrets, source)
			}
		}
	},
	"jobs.batch": func(string) (client.Object, func(int)) {
		job := &batchv1.Job{ObjectMeta: labeled(v1alpha1.LabelSequentialJobUID, "a", agenticsession.LabelSessionUID, "a")}
		job.Spec.Suspend, job.Spec.Template.Spec = new(true), pod()
		job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		return job, func(bytes int) { enlargePod(&job.Spec.Template.Spec, bytes/2) }
	},
	"pods": func(name string) (client.Object, func(int)) {
		labels := labeled(workerpool.LabelWorkerPool, name, v1alpha1.LabelSequentialJobUID, "a", agenticsession.LabelSessionUID, "a")
		p := &corev1.Pod{ObjectMeta: labels, Spec: pod()}
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
		return p, func(bytes int) { enlargePod(&p.Spec, bytes/2) }
	},
	"deployments.apps": func(name string) (client.Object, func(int)) {
		d := &appsv1.Deployment{ObjectMeta: labeled(workerpool.LabelWorkerPool, name)}
		d.Spec.Paused, d.Spec.Replicas, d.Spec.Selector = true, new(int32(0)), &metav1.LabelSelector{MatchLabels: d.Labels}
		d.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: d.ObjectMeta, Spec: pod()}
		return d, func(bytes int) { enlargePod(&d.Spec.Template.Spec, bytes/2) }
	},
	"statefulsets.apps": func(name string) (client.Object, func(int)) {
		s := &appsv1.StatefulSet{ObjectMeta: labeled(workerpool.LabelWorkerPool, name)}
		s.Spec.Replicas, s.Spec.Selector = new(int32(0)), &metav1.LabelSelector{MatchLabels: s.Labels}
		s.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: s.ObjectMeta, Spec: pod()}
		return s, func(bytes int) { enlargePod(&s.Spec.Template.Spec, bytes/2) }
	},
	"networkpolicies.networking.k8s.io": func(string) (client.Object, func(int)) {
		p := &networkingv1.NetworkPolicy{}
		return p, func(bytes int) {
			p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: slices.Repeat([]networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}, bytes/20)}}
		}
	},
	"configmaps": func(name string) (client.Object, func(int)) {
		c := &corev1.ConfigMap{ObjectMeta: labeled(workerpool.LabelWorkerPool, name, "yardmaster.dev/egress-proxy", "true")}
		return c, func(bytes int) { c.Data = map[string]string{"a": strings.Repeat("x", bytes)} }
	},
	"services": func(name string) (client.Object, func(int)) {
		labels := labeled(workerpool.LabelWorkerPool, name, agenticsession.LabelSessionUID, "a")
		return &corev1.Service{ObjectMeta: labels, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, nil
	},
	"serviceaccounts": func(name string) (client.Object, func(int)) {
		return &corev1.ServiceAccount{ObjectMeta: labeled(workerpool.LabelWorkerPool, name, agenticsession.LabelSessionUID, "a")}, nil
	},
	"poddisruptionbudgets.policy": func(name string) (client.Object, func(int)) {
		return &policyv1.PodDisruptionBudget{ObjectMeta: labeled(workerpool.LabelWorkerPool, name)}, nil
	},
	"leases.coordination.k8s.io": func(string) (client.Object, func(int)) {
		l := &coordinationv1.Lease{ObjectMeta: labeled(agenticsession.LabelSessionUID, "a")}
		return l, func(bytes int) { l.Spec.HolderIdentity = new(strings.Repeat("x", bytes)) }
	},
	"roles.rbac.authorization.k8s.io": func(string) (client.Object, func(int)) {
		return &rbacv1.Role{ObjectMeta: labeled(agenticsession.LabelSessionUID, "a")}, nil
	},
	"rolebindings.rbac.authorization.k8s.io": func(string) (client.Object, func(int)) {
		role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "a"}
		return &rbacv1.RoleBinding{ObjectMeta: labeled(agenticsession.LabelSessionUID, "a"), RoleRef: role}, nil
	},
}

// labeled returns metadata with labels: names and values.
func labeled(labels ...string) metav1.ObjectMeta {
	metadata := metav1.ObjectMeta{Labels: map[string]string{}}
	for pair := range slices.Chunk(labels, 2) {
		metadata.Labels[pair[0]] = pair[1]
	}
	return metadata
}

func pod() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}
}

// enlargePod adds what needs much memory for its length. Its managed fields count too.
func enlargePod(pod *corev1.PodSpec, bytes int) {
	for i := range 64 { // as many as the CustomResourceDefinitions allow
		pod.InitContainers = append(pod.InitContainers, corev1.Container{Name: fmt.Sprintf("c%06d", i), Image: "a"})
	}
	for i := range bytes / 500 {
		pod.InitContainers[0].Env = append(pod.InitContainers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("V%06d", i), Value: strings.Repeat("x", 460)})
	}
}

// manyLabels returns labels with the longest names and values, which the API server validates fastest.
func manyLabels(bytes int) map[string]string {
	labels, value := map[string]string{}, strings.Repeat("x", 63)
	domain := strings.Join([]string{value, value, value, value[:61]}, ".")
	for i := range bytes / (len(domain) + 2*len(value)) {
		labels[fmt.Sprintf("%s/%s-%06d", domain, value[:56], i)] = value
	}
	return labels
}

// largestObjects is the number of objects of each resource as large as the API server accepts, if the whole quota is filled. More of them need
// gigabytes in the API server, and no more memory of the operator than the other objects, which are as large as the cache keeps them as a whole.
const largestObjects = 10

// fillCache makes an object almost as large as an object that the cache keeps as a whole.
func fillCache(object client.Object, resource string, enlarge func(int)) {
	size := kube.LargeChildBytes
	switch {
	case strings.HasSuffix(resource, ".yardmaster.dev"):
		size = kube.LargeBytes
	case strings.HasPrefix(resource, "networkpolicies"):
		enlarge(20 * 900)
	case enlarge == nil || resource == "configmaps": // only their metadata is cached, without annotations
		addLabels(object, 6_000)
		return
	}
	const ofServer = 3 << 10 // fields that the API server adds
	object.SetAnnotations(map[string]string{"note": strings.Repeat("x", max(0, size-ofServer-decision.MemoryOf(object)))})
}

func addLabels(object client.Object, bytes int) {
	labels := manyLabels(bytes)
	maps.Copy(labels, object.GetLabels())
	object.SetLabels(labels)
}

// attack creates the objects of a resource in a namespace, the largest first, with a large spec or with many labels.
func attack(ctx context.Context, namespace, resource string, number, largest int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i := range number {
		group.Go(func() error {
			name := fmt.Sprintf("attack-%04d", i)
			object, enlarge := attacks[resource](name)
			object.SetNamespace(namespace)
			object.SetName(name)
			switch {
			case i < largest && i%2 == 0 && enlarge != nil:
				enlarge(largestObject)
			case i >= largest:
				fillCache(object, resource, enlarge)
			default:
				addLabels(object, largestObject)
			}
			if err := cluster.Create(ctx, object); err != nil {
				return fmt.Errorf("creating %s: %w", resource, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// TestATenantCannotFillTheMemory fills a share of the recommended quota, MEMORY_QUOTA_PERCENT, and measures the memory of the operator
// and how long another tenant waits.
func TestATenantCannotFillTheMemory(t *testing.T) {
	percent := testbuilder.NumberFromEnv(t, "MEMORY_QUOTA_PERCENT", 1)
	t.Setenv("GOMEMLIMIT", goMemoryLimit)
	changesOfKind := victimChanges
	if percent < 100 {
		changesOfKind = 10 // whose times prove nothing
	}
	binary, err := testenv.BuildOperator()
	require.NoError(t, err)
	binary = limitMemory(t, binary)
	attacker, victim := cluster.NewNamespace(t, "attacker-", nil), cluster.NewNamespace(t, "victim-", nil)
	start := func() *testenv.Operator {
		t.Helper()
		operator, err := testenv.StartOperator(t.Context(), binary, cluster, append(testenv.MetricsFlags(), "--namespaces", attacker+","+victim)...)
		require.NoError(t, err)
		return operator
	}
	operator := start()
	t.Cleanup(func() { operator.Kill() })
	// How many times as long as a bare client another tenant waits. A larger cluster also slows the API server down, for everybody.
	measure := func(title string) float64 {
		t.Helper()
		waits, bare := measureVictim(t, victim, changesOfKind, operator)
		p99, bareP99 := harness.Quantile(waits, .99), harness.Quantile(bare, .99)
		ratio := p99.Seconds() / bareP99.Seconds()
		t.Logf("%-18s another tenant's p50 %v, p99 %v, without the operator %v, %v: %.1f times; %s", title, round(harness.Quantile(waits, .5)), round(p99),
			round(harness.Quantile(bare, .5)), round(bareP99), ratio, memoryOf(t, operator))
		return ratio
	}
	t.Cleanup(func() { cluster.RemoveFinalizers(t, attacker, "SequentialJob", "Queue", "WorkerPool") })
	createVictim(t, victim)
	before := measure("without the attack")
	started, number := time.Now(), 0
	quota := recommendedQuota(t)
	for _, resource := range slices.Sorted(maps.Keys(quota)) {
		count := quota[resource]
		require.True(t, attacks[resource] != nil, "the quota has %s, and the attack has not", resource)
		largest := largestObjects
		if percent < 100 { // as CI does, which has no time for more
			largest = 3
		}
		count = max(largest, count*percent/100)
		number += count
		at := time.Now()
		require.NoError(t, attack(t.Context(), attacker, resource, count, largest))
		t.Logf("%4d %-40s in %v; %s", count, resource, time.Since(at).Round(time.Second), memoryOf(t, operator))
	}
	t.Logf("%d objects were created in %v", number, time.Since(started).Round(time.Second))
	attacked := measure("with the attack")
	operator.Kill()
	operator = start()
	restarted := measure("after a restart")
	if worst := max(attacked, restarted); percent == 100 && worst > 2*before {
		t.Errorf("another tenant's p99 was %.1f times that of a bare client, with the attack %.1f times", before, worst)
	}
}

var gauges = regexp.MustCompile(`(?m)^(yardmaster_cache_bytes|go_memstats_heap_alloc_bytes) (.+)$`)

// memoryOf describes the memory of the operator, which must not exceed its limit.
func memoryOf(t *testing.T, operator *testenv.Operator) string {
	t.Helper()
	select {
	case <-operator.Exited():
		t.Fatalf("the operator has ended: %v; its log is %s", operator.State(), operator.LogFile)
	default:
	}
	resident, peak, err := harness.ProcessMemory(operator.Pid())
	require.NoError(t, err)
	scraped, err := operator.Metrics(t.Context())
	require.NoError(t, err)
	text := fmt.Sprintf("memory %d MiB, peak %d MiB", resident>>20, peak>>20)
	for _, gauge := range gauges.FindAllSubmatch(scraped, -1) {
		value, err := strconv.ParseFloat(string(gauge[2]), 64)
		require.NoError(t, err)
		text += fmt.Sprintf(", %s %.0f MiB", gauge[1], value/(1<<20))
	}
	return text
}

// victimChanges is the number of changes of each kind that are measured.
const victimChanges = 300

var victimKinds = map[string]string{
	"Policy": `{"spec":{"selector":{"matchLabels":{"change":"%d"}}}}`, "SequentialJob": `{"spec":{"ttlSecondsAfterFinished":%d}}`, "AgenticSession": `{"spec":{"displayName":"%d"}}`,
}

func createVictim(t *testing.T, namespace string) {
	sj := testbuilder.SequentialJob("victim", namespace).Step("a").Obj()
	sj.Spec.Suspend = true
	session := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "victim"}}
	session.Spec.Prompt, session.Spec.Suspend = "do it", true
	victim := metav1.ObjectMeta{Namespace: namespace, Name: "victim"}
	for _, object := range []client.Object{sj, session, &v1alpha1.Policy{ObjectMeta: victim}, &corev1.ConfigMap{ObjectMeta: victim}} {
		object.SetUID("")
		object.SetResourceVersion("")
		require.NoError(t, cluster.Create(t.Context(), object))
	}
}

var changes int

// measureVictim changes the specs of the victim's objects, and returns how long each change waits for its status. In between it
// changes objects that no operator serves, and returns how long the API server takes for these.
func measureVictim(t *testing.T, namespace string, number int, operator *testenv.Operator) (waits, bare []time.Duration) {
	for range number {
		for kind, patch := range victimKinds {
			changes++
			waits = append(waits, waitForChange(t, operator, kind, namespace, fmt.Sprintf(patch, changes), func(changed, seen *unstructured.Unstructured) bool {
				observed, _, _ := unstructured.NestedInt64(seen.Object, "status", "observedGeneration")
				return observed >= changed.GetGeneration()
			}))
			bare = append(bare, waitForChange(t, operator, "ConfigMap", namespace, fmt.Sprintf(`{"data":{"change":"%d"}}`, changes),
				func(changed, seen *unstructured.Unstructured) bool {
					return seen.GetResourceVersion() == changed.GetResourceVersion()
				}))
		}
	}
	return waits, bare
}

// waitForChange changes an object of the victim, and returns how long it takes until the change is done.
func waitForChange(t *testing.T, operator *testenv.Operator, kind, namespace, patch string, done func(changed, seen *unstructured.Unstructured) bool) time.Duration {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(victimKind(kind))
	object.SetNamespace(namespace)
	object.SetName("victim")
	events := watchVictim(t, kind, namespace)
	defer func() { events.Stop() }()
	at := time.Now()
	require.NoError(t, cluster.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(patch))))
	deadline := time.After(2 * time.Minute)
	for {
		select {
		case event, open := <-events.ResultChan():
			if seen, ok := event.Object.(*unstructured.Unstructured); ok && done(object, seen) {
				return time.Since(at)
			}
			if !open {
				events = watchVictim(t, kind, namespace)
			}
		case <-operator.Exited():
			t.Fatalf("the operator has ended: %v; its log is %s", operator.State(), operator.LogFile)
		case <-deadline:
			t.Fatalf("no %s shows the change", kind)
		}
	}
}

func victimKind(kind string) schema.GroupVersionKind {
	if kind == "ConfigMap" {
		return corev1.SchemeGroupVersion.WithKind(kind)
	}
	return v1alpha1.GroupVersion.WithKind(kind)
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

func watchVictim(t *testing.T, kind, namespace string) watch.Interface {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(victimKind(kind).GroupVersion().WithKind(kind + "List"))
	events, err := cluster.Watch(t.Context(), list, client.InNamespace(namespace))
	require.NoError(t, err)
	return events
}
