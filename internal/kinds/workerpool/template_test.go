package workerpool

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
	"github.com/yardmaster/yardmaster/test/require"
)

// builtDeployment returns the Deployment of the updated revision.
func builtDeployment(t *testing.T, s *testPool) *appsv1.Deployment {
	t.Helper()
	d, is := newFleet(s.Observation).updated.workload.(*appsv1.Deployment)
	require.True(t, is, "the workload is not a Deployment")
	return d
}

func TestChangesThatCreateARevision(t *testing.T) {
	for title, test := range map[string]struct {
		change func(s *testPool)
		want   bool
	}{
		"image":   {func(s *testPool) { s.Pool.Spec.Image = "worker:2" }, true},
		"version": {func(s *testPool) { s.Pool.Spec.Version = "2" }, true},
		"env": {func(s *testPool) {
			s.Pool.Spec.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}}}}
		}, true},
		"drain mode":                                        {func(s *testPool) { s.Pool.Spec.Drain = &v1alpha1.Drain{Mode: v1alpha1.DrainSignal} }, true},
		"workload":                                          {func(s *testPool) { s.Pool.Spec.Workload = v1alpha1.WorkloadStatefulSet }, true},
		"another Secret":                                    {func(s *testPool) { s.Config.Secrets = map[string]MountedSecret{"url": {Secret: "other"}} }, true},
		"another connection to the broker":                  {func(s *testPool) { s.Config.Connection = "jetStreamDomain=hub" }, true},
		"replicas do not create a revision":                 {func(s *testPool) { s.withReplicas(7) }, false},
		"concurrency does not create a revision":            {func(s *testPool) { s.Pool.Spec.Concurrency = 50 }, false},
		"the configuration file does not create a revision": {func(s *testPool) { s.Config.File, s.Config.Queues = "y", "mail=2" }, false},
		"rollout does not create a revision":                {func(s *testPool) { s.Pool.Spec.Rollout = &v1alpha1.Rollout{} }, false},
		"the drain timeout does not create a revision":      {func(s *testPool) { s.Pool.Spec.Drain = &v1alpha1.Drain{Timeout: durationSeconds(3600)} }, false},
	} {
		t.Run(title, func(t *testing.T) {
			before, after := newTestPool(1), newTestPool(1)
			test.change(after)
			require.Equal(t, test.want, before.revisionHash() != after.revisionHash())
		})
	}
}

func TestPodOfAWorker(t *testing.T) {
	s := newTestPool(1)
	s.Config.Secrets = map[string]MountedSecret{"url": {Secret: "broker", Keys: []string{"url"}}}
	s.Pool.Spec.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "worker", Image: "old", Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}}, {Name: "other", Image: "x"},
	}}}
	d := builtDeployment(t, s)
	pod := d.Spec.Template.Spec
	worker := pod.Containers[0]
	want := map[string]string{
		"A": "1", "B": "2", "YARDMASTER_POOL": "mail", "YARDMASTER_NAMESPACE": "ns", "YARDMASTER_POD": "",
		"YARDMASTER_REVISION": s.revisionHash(), "YARDMASTER_QUEUES": "", "YARDMASTER_CONCURRENCY": "",
		"YARDMASTER_CONFIG_FILE": "/etc/yardmaster/config/config.yaml", "YARDMASTER_DRAIN_TIMEOUT": "10m55s",
	}
	require.Equal(t, want, environmentOf(&worker))
	require.True(t, worker.Image == "worker:1" && worker.Lifecycle.PreStop.HTTPGet.Path == "/prestop", "worker %+v", worker)
	require.True(t, pod.ServiceAccountName == "mail-workers" && !*pod.AutomountServiceAccountToken, "Pod %+v", pod)
	for _, c := range pod.Containers {
		isRestricted := !*c.SecurityContext.AllowPrivilegeEscalation && c.SecurityContext.Capabilities.Drop[0] == "ALL"
		require.True(t, isRestricted, "container %s is not restricted", c.Name)
	}
	isRestricted := *pod.SecurityContext.RunAsNonRoot && pod.SecurityContext.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault
	require.True(t, isRestricted, "the Pod is not restricted")
	require.True(t, len(pod.Containers[1].VolumeMounts) == 0 && len(worker.VolumeMounts) == 2, "another container mounts Secrets")
}

func TestReadinessOfAWorkerRequiresThatItIsAttached(t *testing.T) {
	own := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	for title, test := range map[string]struct {
		mode v1alpha1.DrainMode
		own  *corev1.Probe
		want string // "", "/readyz" or "own"
	}{
		"mode HTTP":                                {v1alpha1.DrainHTTP, nil, "/readyz"},
		"a probe of the user is kept":              {v1alpha1.DrainHTTP, own, "own"},
		"in mode Sidecar, the sidecar is attached": {v1alpha1.DrainSidecar, nil, ""},
		"in mode Signal, no admin API is needed":   {v1alpha1.DrainSignal, nil, ""},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(1)
			s.Pool.Spec.Drain = &v1alpha1.Drain{Mode: test.mode}
			s.Pool.Spec.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", ReadinessProbe: test.own}}}}
			got := ""
			if probe := builtDeployment(t, s).Spec.Template.Spec.Containers[0].ReadinessProbe; probe != nil && probe.HTTPGet != nil {
				got = probe.HTTPGet.Path
			} else if probe != nil {
				got = "own"
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestSidecarConsumesMessagesForTheWorker(t *testing.T) {
	s := newTestPool(1)
	s.Operator.Image = "yardmaster:1"
	s.Pool.Spec.Drain = &v1alpha1.Drain{Mode: v1alpha1.DrainSidecar}
	s.Config.Secrets = map[string]MountedSecret{"url": {Secret: "broker"}}
	pod := builtDeployment(t, s).Spec.Template.Spec
	sidecar := pod.InitContainers[0]
	isSidecar := sidecar.Image == "yardmaster:1" && *sidecar.RestartPolicy == corev1.ContainerRestartPolicyAlways
	require.True(t, isSidecar && len(sidecar.VolumeMounts) == 2, "sidecar %+v", sidecar)
	require.Equal(t, []string{"worker", "--forward", "http://127.0.0.1:8080"}, sidecar.Args)
	worker := pod.Containers[0]
	require.True(t, len(worker.Env)+len(worker.VolumeMounts) == 0 && worker.Lifecycle.PreStop != nil, "worker %+v", worker)
}

func TestTheTemplateHasOnlyResourcesAndEnvironmentOfTheSidecar(t *testing.T) {
	s := newTestPool(1)
	s.Operator.Image = "yardmaster:1"
	s.Pool.Spec.Drain = &v1alpha1.Drain{Mode: v1alpha1.DrainSidecar}
	sidecar := builtDeployment(t, s).Spec.Template.Spec.InitContainers[0]
	for _, list := range []corev1.ResourceList{sidecar.Resources.Requests, sidecar.Resources.Limits} {
		require.True(t, !list.Cpu().IsZero() && !list.Memory().IsZero(), "a ResourceQuota can refuse the sidecar with %+v", sidecar.Resources)
	}
	own := &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
	endpoint := corev1.EnvVar{Name: "OTEL_EXPORTER_OTLP_ENDPOINT", Value: "http://collector:4318"}
	s.Pool.Spec.HandlerPath = "/jobs"
	s.Pool.Spec.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{InitContainers: []corev1.Container{
		{Name: SidecarContainer, Resources: *own, Env: []corev1.EnvVar{endpoint}},
	}}}
	sidecar = builtDeployment(t, s).Spec.Template.Spec.InitContainers[0]
	require.Equal(t, "http://127.0.0.1:8080/jobs", sidecar.Args[2])
	require.True(t, equality.Semantic.DeepEqual(*own, sidecar.Resources), "sidecar with resources %+v", sidecar.Resources)
	require.True(t, slices.Contains(sidecar.Env, endpoint), "sidecar with the environment %+v", sidecar.Env)
	s.Pool.Spec.Drain.Mode = v1alpha1.DrainHTTP
	others := builtDeployment(t, s).Spec.Template.Spec.InitContainers
	require.True(t, len(others) == 0, "mode HTTP has the sidecar %+v", others)
}

func TestInvalidSpecIsReported(t *testing.T) {
	template := func(pod corev1.PodSpec) func(s *testPool) {
		return func(s *testPool) { s.Pool.Spec.Template = &corev1.PodTemplateSpec{Spec: pod} }
	}
	for title, test := range map[string]struct {
		change func(s *testPool)
		want   string
	}{
		"a reserved variable": {
			template(corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Env: []corev1.EnvVar{{Name: "YARDMASTER_POOL"}}}}}),
			`spec.template.spec.containers[0].env[0].name: Invalid value: "YARDMASTER_POOL": names that begin with YARDMASTER_ are reserved`,
		},
		"a container with the name of the sidecar": {
			template(corev1.PodSpec{Containers: []corev1.Container{{Name: "yardmaster"}}}),
			`spec.template.spec.containers[0].name: Invalid value: "yardmaster": is reserved`,
		},
		"a sidecar with another image": {
			template(corev1.PodSpec{InitContainers: []corev1.Container{{Name: "yardmaster", Image: "mine"}}}),
			`spec.template.spec.initContainers[0]: Forbidden: the sidecar yardmaster can only have env and resources: the operator sets its other fields`,
		},
		"a reserved volume": {
			template(corev1.PodSpec{Volumes: []corev1.Volume{{Name: "yardmaster-url"}}}),
			`spec.template.spec.volumes[0].name: Invalid value: "yardmaster-url": names that begin with yardmaster- are reserved`,
		},
		"a sidecar without an image": {
			func(s *testPool) { s.Pool.Spec.Drain = &v1alpha1.Drain{Mode: v1alpha1.DrainSidecar} },
			"drain.mode is Sidecar, but the operator has no image for the sidecar: set the operator's flag --worker-image",
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(3)
			test.change(s)
			decision := Decide(s.Observation)
			require.True(t, !decision.changesCluster(), "decision changes the cluster")
			ready := meta.FindStatusCondition(decision.Status.Conditions, v1alpha1.ConditionReady)
			require.Equal(t, v1alpha1.ReasonSpecInvalid, ready.Reason)
			require.Contains(t, ready.Message, test.want)
		})
	}
}

func TestNamesAreValidAndUnique(t *testing.T) {
	long := strings.Repeat("a", 250)
	seen := map[string]string{}
	for _, owner := range []string{"mail", "a.b", "a-b", "1st", long, long + "b", "p1st"} {
		for _, name := range []string{childObjectName(owner, "0123456789"), sharedObjectName(owner)} {
			isValid := len(name) <= maxNameLength && !strings.Contains(name, ".") && name[0] >= 'a'
			require.True(t, isValid, "%q is no valid name for an object of %q", name, owner)
			other, taken := seen[name]
			require.True(t, !taken, "%q is the name for both %q and %q", name, owner, other)
			seen[name] = owner
		}
		label := WorkerSelector(owner)[LabelWorkerPool]
		require.True(t, len(label) <= maxLabelLength, "%q is no valid label", label)
	}
}

func TestRevisionHasDriftedIfADesiredFieldChanged(t *testing.T) {
	for title, test := range map[string]struct {
		change func(d *appsv1.Deployment)
		want   bool
	}{
		"unchanged": {func(*appsv1.Deployment) {}, false},
		"defaults of the API server": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.DNSPolicy = corev1.DNSClusterFirst
			worker := &d.Spec.Template.Spec.Containers[0]
			worker.TerminationMessagePath = "/dev/termination-log"
			worker.ReadinessProbe.FailureThreshold, worker.ReadinessProbe.HTTPGet.Scheme = 3, corev1.URISchemeHTTP
		}, false},
		"a slower readiness probe": {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].ReadinessProbe.PeriodSeconds = 60 }, true},
		"other replicas":           {func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(7)) }, false},
		"an added container": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "mesh"})
		}, false},
		"an added label":            {func(d *appsv1.Deployment) { d.Labels["team"] = "mail" }, false},
		"another image":             {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "worker:hand" }, true},
		"no environment variables":  {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Env = nil }, true},
		"no revision label":         {func(d *appsv1.Deployment) { delete(d.Labels, LabelRevision) }, true},
		"another image annotation":  {func(d *appsv1.Deployment) { d.Annotations[AnnotationImage] = "worker:0" }, true},
		"no pool label on its Pods": {func(d *appsv1.Deployment) { delete(d.Spec.Template.Labels, LabelWorkerPool) }, true},
	} {
		desired := newFleet(newTestPool(1).Observation).updated.workload
		found := desired.DeepCopyObject().(*appsv1.Deployment)
		test.change(found)
		require.True(t, HasDrifted(desired, found) == test.want, "%s: drifted %t", title, !test.want)
	}
}

func TestUpdatedRevisionIsRestoredOnceItExists(t *testing.T) {
	require.True(t, Decide(newTestPool(1).Observation).CurrentWorkload == nil, "it is restored before it exists")
	s := newTestPool(1).withCurrentRevision(1)
	require.Equal(t, s.Revisions[0].Name, Decide(s.Observation).CurrentWorkload.GetName())
	s.Pool.Spec.Workload = v1alpha1.WorkloadStatefulSet
	workload := newFleet(s.Observation).updated.workload
	require.True(t, !HasDrifted(workload, workload), "a StatefulSet has drifted from itself")
}

func TestGracePeriodFollowsTheDrainTimeout(t *testing.T) {
	for title, test := range map[string]struct {
		drain     v1alpha1.Drain
		grace     int64
		forWorker string
	}{
		"by default":                          {v1alpha1.Drain{}, 660, "10m55s"},
		"of the spec":                         {v1alpha1.Drain{Timeout: durationSeconds(30)}, 90, "1m25s"},
		"unless it is set":                    {v1alpha1.Drain{TerminationGrace: durationSeconds(20)}, 20, "15s"},
		"but not with onTimeout Requeue":      {v1alpha1.Drain{OnTimeout: v1alpha1.DrainRequeue}, 60, "55s"},
		"and is in addition to a Sidecar too": {v1alpha1.Drain{Mode: v1alpha1.DrainSidecar}, 660, "10m55s"},
		"and in mode Signal":                  {v1alpha1.Drain{Mode: v1alpha1.DrainSignal, Timeout: durationSeconds(5 * 60)}, 360, "5m55s"},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(1)
			s.Operator.Image, s.Pool.Spec.Drain = "yardmaster:1", &test.drain
			pod := builtDeployment(t, s).Spec.Template.Spec
			consumer := append(pod.InitContainers, pod.Containers...)[0]
			i := slices.IndexFunc(consumer.Env, func(e corev1.EnvVar) bool { return e.Name == "YARDMASTER_DRAIN_TIMEOUT" })
			require.Equal(t, test.grace, *pod.TerminationGracePeriodSeconds)
			require.Equal(t, test.forWorker, consumer.Env[i].Value)
		})
	}
}

func TestAnotherDefaultOfTheGracePeriodRestartsNoWorkers(t *testing.T) {
	s := newTestPool(1)
	s.Pool.Spec.Drain = &v1alpha1.Drain{TerminationGrace: durationSeconds(60)} // the default of version 0.1
	s.withCurrentRevision(1)
	old := newFleet(s.Observation).updated.workload
	s.Revisions[0].TerminationGrace = TerminationGraceOf(&TemplateOf(old).Spec)

	s.Pool.Spec.Drain = nil
	decision := Decide(s.Observation)
	isKept := len(decision.Resizes) == 0 && !HasDrifted(decision.CurrentWorkload, old)
	require.True(t, isKept, "the revision is replaced or changed: %+v", decision.Resizes)
	progressing := meta.FindStatusCondition(decision.Status.Conditions, v1alpha1.ConditionProgressing)
	want := "evicted workers have 1m0s, less than drain.timeout: the next revision gives them 11m0s"
	require.True(t, strings.HasSuffix(progressing.Message, want), "message %q, want %q", progressing.Message, want)
	s.Pool.Spec.Version = "2"
	require.Equal(t, 11*time.Minute, TerminationGraceOf(&TemplateOf(newFleet(s.Observation).updated.workload).Spec))
}

func adminAccess(key string) *AdminAccess {
	return &AdminAccess{PublicKey: "public " + key, PreStopKey: []byte(key)}
}

// environmentOf returns the values of a container's variables.
func environmentOf(c *corev1.Container) map[string]string {
	values := map[string]string{}
	for _, e := range c.Env {
		values[e.Name] = e.Value
	}
	return values
}

func TestTheContainerThatTakesMessagesRecognizesTheOperatorAndTheKubelet(t *testing.T) {
	own := &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/bye", Port: intstr.FromInt32(8080)}}
	for title, row := range map[string]struct {
		mode v1alpha1.DrainMode
		hook *corev1.LifecycleHandler
		// want the secret in the hook.
		want bool
	}{
		"mode HTTP":                              {v1alpha1.DrainHTTP, nil, true},
		"mode Sidecar":                           {v1alpha1.DrainSidecar, nil, true},
		"mode Signal, which has no hook":         {v1alpha1.DrainSignal, nil, false},
		"another hook of the user gets nothing":  {v1alpha1.DrainHTTP, own, false},
		"the same hook of the user gets it, too": {v1alpha1.DrainHTTP, &corev1.LifecycleHandler{HTTPGet: httpGetAction("/prestop").HTTPGet}, true},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(1)
			s.Operator = OperatorSettings{Image: "yardmaster:1", Admin: adminAccess("a")}
			s.Pool.Spec.Drain = &v1alpha1.Drain{Mode: row.mode}
			worker := corev1.Container{Name: "worker"}
			if row.hook != nil {
				worker.Lifecycle = &corev1.Lifecycle{PreStop: row.hook}
			}
			s.Pool.Spec.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "other"}, worker}}}
			pod := builtDeployment(t, s).Spec.Template.Spec
			secret := adminauth.PreStopSecret([]byte("a"), s.revisionHash())
			consumer := consumerOf(&pod)
			values := environmentOf(consumer)
			require.Equal(t, "/etc/yardmaster/admin/operator.pem", values["YARDMASTER_ADMIN_KEY_FILE"])
			require.Equal(t, [2]string{secret, ":18081"}, [2]string{values["YARDMASTER_PRESTOP_SECRET"], values["YARDMASTER_METRICS_ADDRESS"]})
			mount := consumer.VolumeMounts[len(consumer.VolumeMounts)-1]
			volume := pod.Volumes[len(pod.Volumes)-1]
			isMounted := mount.MountPath == "/etc/yardmaster/admin" && volume.Name == mount.Name && volume.ConfigMap.Name == "mail-workers"
			require.True(t, isMounted, "mount %+v, volume %+v", mount, volume)
			var header []corev1.HTTPHeader
			if lifecycle := pod.Containers[1].Lifecycle; lifecycle != nil {
				header = lifecycle.PreStop.HTTPGet.HTTPHeaders
			}
			var want []corev1.HTTPHeader
			if row.want {
				want = []corev1.HTTPHeader{{Name: "Yardmaster-Prestop-Secret", Value: secret}}
			}
			require.Equal(t, want, header)
			require.True(t, len(pod.Containers[0].Env) == 0, "another container has the variables %v", pod.Containers[0].Env)
		})
	}
}

func TestAnUpgradeOfTheOperatorRestartsNoWorkers(t *testing.T) {
	for _, mode := range []v1alpha1.DrainMode{v1alpha1.DrainHTTP, v1alpha1.DrainSidecar, v1alpha1.DrainSignal} {
		t.Run(string(mode), func(t *testing.T) {
			s := newTestPool(1)
			s.Operator.Image = "yardmaster:1"
			s.Pool.Spec.Drain = &v1alpha1.Drain{Mode: mode}
			observe := func() *fleet { return newFleet(s.Observation) }
			existing := func(r *revisionState) []Revision {
				return []Revision{{
					Name: r.Name, Hash: r.Hash, SidecarImage: SidecarImage(&TemplateOf(r.workload).Spec), PreStopSecret: PreStopSecretOf(&TemplateOf(r.workload).Spec),
				}}
			}
			before := observe().updated
			s.Revisions = existing(before)
			require.True(t, s.Revisions[0].PreStopSecret == "", "the revision has a secret although the operator has no key")
			assertKept := func(revision *revisionState, image string, access *AdminAccess) {
				t.Helper()
				s.Operator.Image, s.Operator.Admin = image, access
				after := observe()
				require.Equal(t, 1, len(after.revisions))
				require.Equal(t, revision.workload, after.updated.workload)
			}
			assertKept(before, "yardmaster:2", adminAccess("a"))
			s.Pool.Spec.Version = "2"
			next := observe().updated
			s.Revisions = existing(next)
			require.True(t, next.Hash != before.Hash && s.Revisions[0].PreStopSecret != "", "the next revision is not protected")
			require.Equal(t, map[bool]string{true: "yardmaster:2"}[mode == v1alpha1.DrainSidecar], s.Revisions[0].SidecarImage)
			assertKept(next, "yardmaster:3", adminAccess("b"))
			assertKept(next, "yardmaster:3", nil)
		})
	}
}

func TestWorkersGetThePublicKeyFromTheConfigMap(t *testing.T) {
	s := newTestPool(1)
	for _, access := range []*AdminAccess{nil, adminAccess("a"), adminAccess("b")} {
		want := ""
		if s.Operator.Admin = access; access != nil {
			want = access.PublicKey
		}
		for _, object := range Decide(s.Observation).SharedObjects {
			if c, is := object.(*corev1.ConfigMap); is {
				require.Equal(t, want, c.Data["operator.pem"])
			}
		}
	}
}

func TestWorkersOmitNamesFromMetricsAsTheirOperatorDoes(t *testing.T) {
	s := newTestPool(1)
	s.Operator.Admin = adminAccess("a")
	pod := builtDeployment(t, s).Spec.Template.Spec
	variables := consumerOf(&pod).Env
	i := slices.IndexFunc(variables, func(e corev1.EnvVar) bool { return e.Name == "YARDMASTER_METRICS_OMIT_OBJECT_NAMES" })
	require.True(t, i >= 0, "no variable in %v", variables)
	reference := variables[i].ValueFrom.ConfigMapKeyRef
	for _, omit := range []bool{false, true} {
		s.Operator.OmitObjectNames = omit
		require.Equal(t, pod, builtDeployment(t, s).Spec.Template.Spec)
		for _, object := range Decide(s.Observation).SharedObjects {
			config, is := object.(*corev1.ConfigMap)
			if !is {
				continue
			}
			value, found := config.Data[reference.Key]
			isSet := found == omit && (!found || value == "true")
			require.True(t, isSet && config.Name == reference.Name && *reference.Optional, "flag %t: %+v in %s: %q", omit, reference, config.Name, value)
		}
	}
}

func TestThePodMonitorSelectsTheWorkersOfEveryPoolAndTheirMetricsPort(t *testing.T) {
	content := require.Call(os.ReadFile("../../../config/components/prometheus/pod_monitor.yaml")).Succeeds(t)
	var monitor struct {
		Spec struct {
			NamespaceSelector   struct{ Any bool }
			Selector            metav1.LabelSelector
			PodMetricsEndpoints []struct{ Port string }
		}
	}
	require.NoError(t, yaml.Unmarshal(content, &monitor))
	selector := require.Call(metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)).Succeeds(t)
	s := newTestPool(1)
	s.Operator.Admin = adminAccess("a")
	template := builtDeployment(t, s).Spec.Template
	isOnlyWorkers := selector.Matches(labels.Set(template.Labels)) && !selector.Matches(labels.Set{"app": "a"})
	require.True(t, monitor.Spec.NamespaceSelector.Any && isOnlyWorkers, "%+v does not select only workers, in any namespace", monitor.Spec)
	for _, endpoint := range monitor.Spec.PodMetricsEndpoints {
		isPort := func(p corev1.ContainerPort) bool { return p.Name == endpoint.Port }
		require.True(t, slices.ContainsFunc(consumerOf(&template.Spec).Ports, isPort), "workers have no port %s", endpoint.Port)
	}
}

// networkPolicyOf returns the NetworkPolicy that a decision applies; nil if it applies none.
func networkPolicyOf(decision *Decision) *networkingv1.NetworkPolicy {
	for _, object := range decision.SharedObjects {
		if policy, is := object.(*networkingv1.NetworkPolicy); is {
			return policy
		}
	}
	return nil
}

// admits reports whether a rule for all peers admits connections to a port.
func admits(policy *networkingv1.NetworkPolicy, protocol corev1.Protocol, port int32) bool {
	for _, rule := range policy.Spec.Ingress {
		for _, p := range rule.Ports {
			first := p.Port.IntVal
			if len(rule.From) == 0 && *p.Protocol == protocol && port >= first && port <= ptr.Deref(p.EndPort, first) {
				return true
			}
		}
	}
	return false
}

func TestOnlyTheOperatorCanConnectToTheAdminPort(t *testing.T) {
	s := newTestPool(1)
	s.Operator.Namespace = "yardmaster-system"
	decision := Decide(s.Observation)
	policy := networkPolicyOf(&decision)
	want := networkingv1.NetworkPolicyIngressRule{
		From: []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "yardmaster-system"}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "yardmaster", "app.kubernetes.io/component": "operator"}},
		}},
		Ports: []networkingv1.NetworkPolicyPort{portRange(corev1.ProtocolTCP, 8081, 8081)},
	}
	require.Equal(t, want, policy.Spec.Ingress[0])
	require.True(t, !admits(policy, corev1.ProtocolTCP, 8081), "all peers can connect to the admin port")
	for _, port := range []int32{1, 8080, 8082, MetricsPort, 65535} {
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
			require.True(t, admits(policy, protocol, port), "port %d is closed for %s", port, protocol)
		}
	}
	require.True(t, admits(policy, corev1.ProtocolUDP, 8081), "UDP port 8081 is closed")
	pod := labels.Set(TemplateOf(newFleet(s.Observation).updated.workload).Labels)
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	require.True(t, err == nil && selector.Matches(pod) && !selector.Matches(labels.Set{LabelWorkerPool: "other"}), "selector %s, %v", selector, err)
}

func TestOtherNetworkPoliciesDecideAboutTheOtherPorts(t *testing.T) {
	egress := networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}
	selecting := func(name, value string) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{name: value}}}
	}
	for title, row := range map[string]struct {
		other networkingv1.NetworkPolicy
		want  bool
	}{
		"one that denies everything in the namespace":  {networkingv1.NetworkPolicy{}, false},
		"one that selects a label of the workers":      {networkingv1.NetworkPolicy{Spec: selecting("app", "mail")}, false},
		"one that selects a label that all pools have": {networkingv1.NetworkPolicy{Spec: selecting(LabelWorkerPool, "mail")}, false},
		"one that selects other Pods":                  {networkingv1.NetworkPolicy{Spec: selecting("app", "other")}, true},
		"one that restricts only outgoing connections": {networkingv1.NetworkPolicy{Spec: egress}, true},
		"its own": {
			networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "pool", Controller: new(true)}}},
				Spec:       selecting(LabelWorkerPool, "mail"),
			}, true,
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(1)
			s.Operator.Namespace = "yardmaster-system"
			s.Pool.Spec.Template = &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "mail"}}}
			s.NetworkPolicies = []networkingv1.NetworkPolicy{row.other}
			decision := Decide(s.Observation)
			policy := networkPolicyOf(&decision)
			opens := admits(policy, corev1.ProtocolTCP, 8080)
			require.True(t, opens == row.want && len(policy.Spec.Ingress[0].From) > 0, "opens other ports: %t; rules %+v", opens, policy.Spec.Ingress)
		})
	}
}

func TestWithoutAManagedNetworkPolicyNoPodIsSelected(t *testing.T) {
	s := newTestPool(1)
	decision := Decide(s.Observation)
	require.True(t, networkPolicyOf(&decision) == nil, "an operator outside a cluster creates a NetworkPolicy")
	s.Operator.Namespace = "yardmaster-system"
	s.Pool.Spec.NetworkPolicy = v1alpha1.PoolNetworkPolicyNone
	decision = Decide(s.Observation)
	selector, err := metav1.LabelSelectorAsSelector(&networkPolicyOf(&decision).Spec.PodSelector)
	pod := labels.Set(TemplateOf(newFleet(s.Observation).updated.workload).Labels)
	require.True(t, err == nil && !selector.Matches(pod) && !selector.Matches(labels.Set{}), "selector %s, %v", selector, err)
}
