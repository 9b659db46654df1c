//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/test/hostile"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

const (
	peerSeconds      = "5"              // how long each attack on a port lasts: longer than the reply to a spec change
	serverAttackTime = 20 * time.Second // how long hostile servers answer the operator: several attempts each
)

// attackEnv has a tenant with legitimate work, and an attacker without any permission.
type attackEnv struct {
	t        *testing.T
	victim   *queueEnv
	attacker *corev1.Pod
	meter    *corev1.Pod // a Pod that can read the memory of processes
	// pods are the operator's replicas, whose containers must never restart.
	pods     []corev1.Pod
	baseline usage
}

// testHostilePeers attacks each port in all ways at the same time. make soak also tries each attack alone, in which the operator may use less memory.
func (env *attackEnv) testHostilePeers(t *testing.T) {
	for _, port := range []string{"webhook:", "metrics:", "health:"} {
		t.Run(port+" all attacks", func(t *testing.T) { env.attack(t, port, maxCombinedGrowth) })
	}
	if !isSoaking() {
		return
	}
	for _, title := range slices.Sorted(maps.Keys(hostile.Peers())) {
		t.Run(title, func(t *testing.T) { env.attack(t, title, maxMemoryGrowth) })
	}
}

// attack attacks the operator in the ways whose titles have the prefix.
func (env *attackEnv) attack(t *testing.T, prefix string, maxGrowth float64) {
	t.Helper()
	args := []string{"-n", attackerNamespace, "exec", env.attacker.Name, "--", "/attacker", "attack", prefix, peerSeconds}
	for i := range env.pods {
		args = append(args, env.pods[i].Status.PodIP)
	}
	env.check(t, env.measure(t, func(t *testing.T) {
		output, err := newKubectlCommand(t.Context(), args...).CombinedOutput()
		t.Logf("%s", output)
		require.NoError(t, err)
	}), maxGrowth)
}

// testHostileServers creates a Queue or a WorkerPool for each attack, all of one tenant and at the same time.
func (env *attackEnv) testHostileServers(t *testing.T) {
	titles := slices.Concat(slices.Collect(maps.Keys(hostile.Brokers())), slices.Collect(maps.Keys(hostile.Sources())))
	var objects []client.Object
	env.check(t, env.measure(t, func(t *testing.T) {
		start := time.Now()
		for i, title := range titles {
			objects = append(objects, env.createHostile(t, fmt.Sprintf("hostile-%02d", i), title))
		}
		objects = append(objects, env.createHostileWorkers(t))
		for i, title := range titles {
			poll.Until(t, title+" to be reported", func() bool { return isFailureReported(t, objects[i]) })
		}
		poll.Until(t, "all attacks to take place", func() bool { return missingAttacks(t).Len() == 0 })
		time.Sleep(serverAttackTime - time.Since(start)) // the attacks continue meanwhile
	}), maxCombinedGrowth)
	for _, object := range objects {
		t.Logf("%s: %s", object.GetName(), failureOf(object))
	}
}

// createHostile creates an object that makes the operator connect to a hostile server.
func (env *attackEnv) createHostile(t *testing.T, name, title string) client.Object {
	address := fmt.Sprintf("%s:%d", env.attacker.Status.PodIP, hostile.Port(title))
	if broker, is := hostile.Brokers()[title]; is {
		return env.createQueue(t, attackerNamespace, name, broker.Engine, broker.Scheme+"://"+address)
	}
	source := hostile.Sources()[title]
	createUntilEnd(t, testbuilder.BrokerSecret(attackerNamespace, name, "url", source.Scheme+address))
	return createSourcePool(t, name, source.Spec(name, address))
}

func createSourcePool(t *testing.T, name string, source v1alpha1.Source) *v1alpha1.WorkerPool {
	t.Helper()
	pool := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: attackerNamespace}}
	pool.Spec.Source, pool.Spec.Autoscaling = &source, &v1alpha1.Autoscaling{MaxReplicas: 1}
	pool.Spec.Template = &corev1.PodTemplateSpec{Spec: attackerPodSpec("work")}
	return createUntilEnd(t, pool)
}

// createHostileWorkers creates a pool whose workers attack the operator when it reads their stats.
func (*attackEnv) createHostileWorkers(t *testing.T) client.Object {
	workers := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "hostile-workers", Namespace: attackerNamespace}}
	workers.Annotations = map[string]string{workerpool.AnnotationAbandon: "true"} // its source never confirms that it is drained
	workers.Spec.Source = &v1alpha1.Source{External: &v1alpha1.ExternalSource{Address: "192.0.2.1:1"}}
	workers.Spec.Autoscaling = &v1alpha1.Autoscaling{MinReplicas: 5, MaxReplicas: 5}
	workers.Spec.Template = &corev1.PodTemplateSpec{Spec: attackerPodSpec("work")}
	workers.Spec.Drain = &v1alpha1.Drain{Timeout: v1alpha1.NewDuration(time.Second), TerminationGrace: v1alpha1.NewDuration(time.Second)}
	return createUntilEnd(t, workers)
}

// missingAttacks returns the attacks that have not taken place, by the logs of the attackers.
func missingAttacks(t *testing.T) sets.Set[string] {
	missing := sets.KeySet(hostile.All())
	missing = missing.Union(sets.KeySet(hostile.Workers()))
	pods := podsWith(t, attackerNamespace, nil)
	for i := range pods {
		logs, err := clientset.CoreV1().Pods(attackerNamespace).GetLogs(pods[i].Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
		if err != nil {
			continue // it has not started yet
		}
		missing.Delete(strings.Split(string(logs), "\n")...)
	}
	return missing
}

// isFailureReported reads a Queue or a WorkerPool.
func isFailureReported(t *testing.T, object client.Object) bool {
	t.Helper()
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(object), object))
	return failureOf(object) != ""
}

// failureOf returns the message of the condition that says that the operator cannot use a broker or source.
func failureOf(object client.Object) string {
	var condition *metav1.Condition
	switch object := object.(type) {
	case *v1alpha1.Queue:
		condition = meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionBrokerReachable)
	case *v1alpha1.WorkerPool:
		condition = meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionScalingActive)
		if condition != nil && condition.Reason != v1alpha1.ReasonMetricsStale {
			return ""
		}
	}
	if condition == nil || condition.Status != metav1.ConditionFalse {
		return ""
	}
	return condition.Message
}

// deniedHosts are the host itself, in several notations, and metadata services.
var deniedHosts = map[string]string{
	"loopback": "127.0.0.1", "all of loopback": "127.9.9.9", "loopback in IPv6": "[::1]", "mapped loopback": "[::ffff:127.0.0.1]",
	"unspecified": "0.0.0.0", "metadata": "169.254.169.254", "metadata in IPv6": "[fd00:ec2::254]", "a local name": "localhost",
}

func (env *attackEnv) testDeniedAddresses(t *testing.T) {
	const denied = "does not connect to this address"
	// 8081 is the operator's health port, which would answer.
	for what, host := range deniedHosts {
		t.Run(what, func(t *testing.T) {
			name := "denied-" + strings.ToLower(strings.ReplaceAll(what, " ", "-"))
			pool := createSourcePool(t, name, hostile.ScalerSource(v1alpha1.BrokerAccess{}, host+":8081"))
			queue := env.createQueue(t, attackerNamespace, name, v1alpha1.EngineNATS, "nats://"+host+":8081")
			for _, object := range []client.Object{pool, queue} {
				poll.Until(t, what+" to be denied", func() bool { return isFailureReported(t, object) })
				require.True(t, strings.Contains(failureOf(object), denied), "%T: %s", object, failureOf(object))
			}
		})
	}
	t.Run("names that resolve to these", func(t *testing.T) { env.testDeniedNames(t) })
}

// testDeniedNames uses names that the cluster's DNS resolves to the operator itself and to a metadata
// service. Their servers are reported like any other that does not answer.
func (env *attackEnv) testDeniedNames(t *testing.T) {
	for name, address := range map[string]string{"operator-itself": leaderPod(t).Status.PodIP, "metadata-service": "100.100.100.200"} {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: attackerNamespace}}
		service.Spec.ClusterIP, service.Spec.Ports = corev1.ClusterIPNone, []corev1.ServicePort{{Port: 8081}}
		slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}}}
		slice.ObjectMeta = metav1.ObjectMeta{Name: name, Namespace: attackerNamespace, Labels: map[string]string{discoveryv1.LabelServiceName: name}}
		slice.Ports = []discoveryv1.EndpointPort{{Port: new(int32(8081))}}
		createUntilEnd(t, service)
		createUntilEnd(t, slice)
		queue := env.createQueue(t, attackerNamespace, name, v1alpha1.EngineNATS, fmt.Sprintf("nats://%s.%s.svc.cluster.local:8081", name, attackerNamespace))
		poll.Until(t, name+" to be refused", func() bool { return isFailureReported(t, queue) })
		message := failureOf(queue)
		require.True(t, !strings.Contains(message, address) && strings.Contains(message, "unreachable"), "%s: %s", name, message)
	}
}

const (
	attackerImage = "attacker:v1"
	// maxMemoryGrowth is how much more memory than in the baseline an attack may make the operator use. All
	// hostile servers at the same time may make it use maxCombinedGrowth.
	maxMemoryGrowth, maxCombinedGrowth = 1.2, 1.5
	memoryNoise                        = 24 << 10 // in KiB, which is allowed in any case: a replica that does not lead uses little in the baseline
	// maxLatency is how long another tenant may wait in any case, and maxLatencyGrowth is how many times as long as
	// in the baseline, on a machine that is slow anyway. The node runs the attacker and the control plane too.
	maxLatency, maxLatencyGrowth = 10 * time.Second, 4
	probeName                    = "probe"                // the name of the objects of the other tenant whose specs are changed
	probePause                   = 100 * time.Millisecond // the pause between two spec changes of the other tenant
)

// usage is what the operator uses, and how long it lets a tenant wait.
type usage struct {
	memory    map[string]int  // the maximum resident memory of each replica, by Pod, in KiB
	latencies []time.Duration // the times from spec writes to the statuses that observe them
}

// newAttackEnv starts the attacker, and measures the operator during legitimate work.
func newAttackEnv(t *testing.T) *attackEnv {
	env := &attackEnv{t: t, victim: newQueueEnv(t, victimNamespace)}
	metadata := metav1.ObjectMeta{GenerateName: "attacker-", Namespace: attackerNamespace}
	env.attacker = createUntilEnd(t, &corev1.Pod{ObjectMeta: metadata, Spec: attackerPodSpec("serve")})
	env.meter = createUntilEnd(t, newPrivilegedPod("meter-", "sleep 3600"))
	for _, pod := range []*corev1.Pod{env.attacker, env.meter} {
		poll.Until(t, pod.Name+" to run", func() bool { return objectExists(t, pod) && pod.Status.Phase == corev1.PodRunning })
	}
	var err error
	env.pods, err = operatorPods(t.Context())
	require.NoError(t, err)
	env.createQueue(t, victimNamespace, probeName, v1alpha1.EngineNATS, env.victim.brokerURL())
	createUntilEnd(t, &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: probeName, Namespace: victimNamespace}})
	sj := prepareSequence(victimNamespace, testbuilder.SequentialJob(probeName, "").Step("a", shellScript("true")).Obj())
	sj.Name, sj.GenerateName, sj.Spec.Suspend = probeName, "", true
	createUntilEnd(t, sj)
	env.victim.waitUntilQueueReady(probeName)
	env.baseline = env.measure(t, env.workLegitimately)
	t.Logf("baseline: %s", env.baseline)
	return env
}

// attackerPodSpec returns a Pod with a quarter of a CPU, as a namespace with a quota has it, so that it exhausts the operator and not the node,
// which also runs the control plane.
func attackerPodSpec(command string) corev1.PodSpec {
	pod := restrictedPod("worker", attackerImage, "/attacker", command)
	pod.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m")}
	pod.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}
	return pod
}

// workLegitimately does what the attacks abuse, with well-behaved clients and servers: reviews of objects, and
// as many Queues on brokers as there are hostile ones.
func (env *attackEnv) workLegitimately(t *testing.T) {
	for i := range len(hostile.Brokers()) + len(hostile.Sources()) {
		env.createQueue(t, victimNamespace, fmt.Sprintf("legitimate-%02d", i), v1alpha1.EngineNATS, env.victim.brokerURL())
	}
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			for range 20 {
				sj := prepareSequence(victimNamespace, testbuilder.SequentialJob("reviewed", "").Step("a", largeArgument).Obj())
				if err := cluster.Create(t.Context(), sj, client.DryRunAll); err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
	for i := range len(hostile.Brokers()) {
		env.victim.waitUntilQueueReady(fmt.Sprintf("legitimate-%02d", i))
	}
}

// largeArgument makes an object large, but not unusual.
var largeArgument = testbuilder.ChangeContainer(func(c *corev1.Container) { c.Args = []string{strings.Repeat("x", 50_000)} })

// createQueue creates a Queue with a broker of its own, until the end of the test.
func (*attackEnv) createQueue(t *testing.T, namespace, name string, engine v1alpha1.Engine, url string) *v1alpha1.Queue {
	t.Helper()
	createUntilEnd(t, testbuilder.BrokerSecret(namespace, name, "url", url))
	queue := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	queue.Spec.Broker = &v1alpha1.Broker{Engine: engine}
	queue.Spec.Broker.URLSecretRef.Name = name
	createUntilEnd(t, queue)
	t.Cleanup(func() { // before it is deleted, so that its broker is not needed
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"yardmaster.dev/abandon":"true"}}}`))
		require.NoError(t, cluster.Patch(context.Background(), queue, patch))
	})
	return queue
}

// measure measures the operator while work runs, and the latency of another tenant's objects.
func (env *attackEnv) measure(t *testing.T, work func(*testing.T)) usage {
	t.Helper()
	env.readMemory(t, "echo 5 > /proc/$p/clear_refs") // resets the maximum
	ctx, stop := context.WithCancel(t.Context())
	probes := newProbes()
	latencies := make([][]time.Duration, len(probes))
	var running sync.WaitGroup
	for i, probe := range probes {
		running.Go(func() {
			for ctx.Err() == nil {
				latency, err := probe.measureLatency(ctx)
				if err == nil {
					latencies[i] = append(latencies[i], latency)
				} else if ctx.Err() == nil {
					t.Errorf("another tenant's object: %v", err)
				}
				time.Sleep(probePause)
			}
		})
	}
	work(t)
	stop()
	running.Wait()
	return usage{memory: env.readMemory(t, "true"), latencies: slices.Concat(latencies...)}
}

// probe is an object of the other tenant whose spec is changed again and again.
type probe struct {
	object client.Object
	// patch of the spec has a number.
	patch    string
	observed func() int64
}

func newProbes() []probe {
	meta := metav1.ObjectMeta{Name: probeName, Namespace: victimNamespace}
	policy, queue, sj := &v1alpha1.Policy{ObjectMeta: meta}, &v1alpha1.Queue{ObjectMeta: meta}, &v1alpha1.SequentialJob{ObjectMeta: meta}
	return []probe{
		{policy, `{"spec":{"precedence":%d}}`, func() int64 { return policy.Status.ObservedGeneration }},
		{queue, `{"spec":{"maxBacklog":%d}}`, func() int64 { return queue.Status.ObservedGeneration }},
		{sj, `{"spec":{"ttlSecondsAfterFinished":%d}}`, func() int64 { return sj.Status.ObservedGeneration }},
	}
}

// probeNumber makes each patch change the spec.
var probeNumber atomic.Int64

// measureLatency returns the time from before the write of the spec, which calls the webhook, to the status that observes it.
func (p probe) measureLatency(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	patch := fmt.Appendf(nil, p.patch, 1+probeNumber.Add(1)%900)
	if err := cluster.Patch(ctx, p.object, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return 0, err
	}
	written := p.object.GetGeneration()
	err := poll.UntilNil(ctx, func() error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(p.object), p.object); err != nil {
			return err
		}
		if observed := p.observed(); observed < written {
			return fmt.Errorf("the status observes generation %d, not %d", observed, written)
		}
		return nil
	})
	return time.Since(start), err
}

// readMemory runs a command in each replica, whose process is $p, and returns the maximum of its resident memory in KiB before that, by Pod.
func (env *attackEnv) readMemory(t *testing.T, command string) map[string]int {
	t.Helper()
	memory := map[string]int{}
	for i := range env.pods {
		_, container, _ := strings.Cut(env.pods[i].Status.ContainerStatuses[0].ContainerID, "://")
		script := fmt.Sprintf(`for f in $(grep -ls %s /proc/[0-9]*/cgroup); do
	p=$(echo $f | cut -d/ -f3)
	[ "$(cat /proc/$p/comm)" = %s ] && sed -n 's/VmHWM://p' /proc/$p/status && %s
done; true`, container, operatorName, command)
		output, err := newKubectlCommand(t.Context(), "-n", privilegedNamespace, "exec", env.meter.Name, "--", "sh", "-c", script).Output()
		require.NoError(t, err)
		var kib int
		_, err = fmt.Sscan(string(output), &kib)
		require.True(t, err == nil, "the process of Pod %s ended, or its memory is unknown: %q", env.pods[i].Name, output)
		memory[env.pods[i].Name] = kib
	}
	return memory
}

// check compares what was used during an attack with the baseline.
func (env *attackEnv) check(t *testing.T, u usage, maxGrowth float64) {
	t.Helper()
	t.Log(u)
	for pod, kib := range u.memory {
		baseline := env.baseline.memory[pod]
		limit := max(baseline+memoryNoise, int(maxGrowth*float64(baseline)))
		require.True(t, kib <= limit, "Pod %s used %d MiB, want at most %d; in the baseline %d", pod, kib>>10, limit>>10, baseline>>10)
	}
	require.True(t, len(u.latencies) != 0, "no spec change of another tenant was observed")
	t.Logf("another tenant waited %.1f times as long as in the baseline (median), %.1f times (p95)",
		u.percentile(50).Seconds()/env.baseline.percentile(50).Seconds(), u.percentile(95).Seconds()/env.baseline.percentile(95).Seconds())
	slowest, limit := u.percentile(100), max(maxLatency, maxLatencyGrowth*env.baseline.percentile(100))
	require.True(t, slowest <= limit, "another tenant waited %s, want at most %s", slowest, limit)
	pods, err := operatorPods(t.Context())
	require.NoError(t, err)
	for i, pod := range pods {
		require.True(t, len(pods) == len(env.pods) && pod.UID == env.pods[i].UID && pod.Status.ContainerStatuses[0].RestartCount == env.pods[i].Status.ContainerStatuses[0].RestartCount,
			"Pod %s was replaced or restarted: %+v", pod.Name, pod.Status.ContainerStatuses)
	}
}

// percentile returns the latency that n percent of the spec changes did not exceed.
func (u usage) percentile(n int) time.Duration {
	sorted := slices.Sorted(slices.Values(u.latencies))
	return sorted[(len(sorted)*n+99)/100-1].Round(time.Millisecond)
}

func (u usage) String() string {
	var memory []string
	for _, pod := range slices.Sorted(maps.Keys(u.memory)) {
		memory = append(memory, fmt.Sprintf("%d MiB", u.memory[pod]>>10))
	}
	return fmt.Sprintf("%s of memory; %d spec changes observed in %s (median), %s (p95)", strings.Join(memory, " and "), len(u.latencies), u.percentile(50), u.percentile(95))
}
