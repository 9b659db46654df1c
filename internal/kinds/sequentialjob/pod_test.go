package sequentialjob

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestStepContainerIsMergedIntoTheTemplateContainer(t *testing.T) {
	type c = corev1.Container
	type env = corev1.EnvVar
	type mount = corev1.VolumeMount
	type port = corev1.ContainerPort
	type security = corev1.SecurityContext
	quantities := func(pairs ...string) corev1.ResourceList {
		list := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return list
	}
	probe := func(period, threshold int32) *corev1.Probe {
		return &corev1.Probe{PeriodSeconds: period, FailureThreshold: threshold}
	}
	fieldRef := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
	for name, test := range map[string]struct{ defaults, step, want c }{
		"a field that only the template sets is kept": {
			c{Image: "base", WorkingDir: "/src", Command: []string{"sh"}}, c{}, c{Image: "base", WorkingDir: "/src", Command: []string{"sh"}},
		},
		"the step overrides scalars, command, args and probes": {
			c{Image: "base", Command: []string{"sh"}, Args: []string{"-c", "true"}, TTY: true, LivenessProbe: probe(1, 9)},
			c{Image: "mine", Command: []string{"make"}, Args: []string{"all"}, LivenessProbe: probe(2, 0)},
			c{Image: "mine", Command: []string{"make"}, Args: []string{"all"}, TTY: true, LivenessProbe: probe(2, 0)},
		},
		"a command of the step keeps the template's args": {
			c{Command: []string{"sh"}, Args: []string{"-c"}}, c{Command: []string{"bash"}}, c{Command: []string{"bash"}, Args: []string{"-c"}},
		},
		"env entries are replaced by name and keep the template's order": {
			c{Env: []env{{Name: "A", Value: "a"}, {Name: "B", ValueFrom: fieldRef}}},
			c{Env: []env{{Name: "C", Value: "c"}, {Name: "B", Value: "b"}}},
			c{Env: []env{{Name: "A", Value: "a"}, {Name: "B", Value: "b"}, {Name: "C", Value: "c"}}},
		},
		"envFrom is appended": {
			c{EnvFrom: []corev1.EnvFromSource{{Prefix: "A"}}},
			c{EnvFrom: []corev1.EnvFromSource{{Prefix: "B"}}},
			c{EnvFrom: []corev1.EnvFromSource{{Prefix: "A"}, {Prefix: "B"}}},
		},
		"mounts are merged by path": {
			c{VolumeMounts: []mount{{Name: "cache", MountPath: "/cache", ReadOnly: true}, {Name: "src", MountPath: "/src"}}},
			c{VolumeMounts: []mount{{Name: "fast", MountPath: "/cache"}, {Name: "src", MountPath: "/src2"}}},
			c{VolumeMounts: []mount{{Name: "fast", MountPath: "/cache"}, {Name: "src", MountPath: "/src"}, {Name: "src", MountPath: "/src2"}}},
		},
		"devices are merged by path": {
			c{VolumeDevices: []corev1.VolumeDevice{{DevicePath: "/dev/a"}}},
			c{VolumeDevices: []corev1.VolumeDevice{{DevicePath: "/dev/b"}}},
			c{VolumeDevices: []corev1.VolumeDevice{{DevicePath: "/dev/a"}, {DevicePath: "/dev/b"}}},
		},
		"ports are merged by number and protocol, TCP by default": {
			c{Ports: []port{{ContainerPort: 80, Protocol: "TCP"}, {ContainerPort: 53, Protocol: "UDP"}}},
			c{Ports: []port{{Name: "web", ContainerPort: 80}, {ContainerPort: 53}}},
			c{Ports: []port{{Name: "web", ContainerPort: 80}, {ContainerPort: 53, Protocol: "UDP"}, {ContainerPort: 53}}},
		},
		"resources are merged per key": {
			c{Resources: corev1.ResourceRequirements{Requests: quantities("cpu", "1", "memory", "1Gi"), Limits: quantities("memory", "1Gi")}},
			c{Resources: corev1.ResourceRequirements{Requests: quantities("cpu", "2")}},
			c{Resources: corev1.ResourceRequirements{Requests: quantities("cpu", "2", "memory", "1Gi"), Limits: quantities("memory", "1Gi")}},
		},
		"securityContext is merged per field": {
			c{SecurityContext: &security{RunAsNonRoot: new(true), RunAsUser: new(int64(1000))}},
			c{SecurityContext: &security{RunAsUser: new(int64(2000)), Privileged: new(false)}},
			c{SecurityContext: &security{RunAsNonRoot: new(true), RunAsUser: new(int64(2000)), Privileged: new(false)}},
		},
		"a securityContext field that the step sets to false or 0 takes precedence": {
			c{SecurityContext: &security{RunAsNonRoot: new(true), RunAsUser: new(int64(1000))}},
			c{SecurityContext: &security{RunAsNonRoot: new(false), RunAsUser: new(int64(0))}},
			c{SecurityContext: &security{RunAsNonRoot: new(false), RunAsUser: new(int64(0))}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			defaults, step := test.defaults.DeepCopy(), test.step.DeepCopy()
			got := mergeContainer(defaults, step)
			assert.Equal(t, "merged", test.want, got)
			require.True(t, cmp.Equal(*defaults, test.defaults) && cmp.Equal(*step, test.step), "merging changed its arguments")
		})
	}
}

// An operator that copies the template field by field omits annotations, the securityContext, pull secrets or init containers.
func TestEveryFieldOfTheTemplateAndOfAStepIsKept(t *testing.T) {
	var template corev1.PodTemplateSpec
	setNonZero(reflect.ValueOf(&template).Elem())
	template.Spec.Containers[0].Name = "step"
	sj := sequence("build").Template(template).Obj()
	sj.Spec.Containers[0].Image = ""
	got := podTemplate(sj, &sj.Spec.Containers[0])
	for key, value := range template.Labels {
		assert.Equal(t, "label "+key, value, got.Labels[key])
	}
	want := template.DeepCopy()
	want.Labels = got.Labels
	want.Spec.Containers[0].Name = "build"
	assert.Equal(t, "Pod template", *want, got)
	plain := sequence("build").Obj()
	plain.Spec.Containers[0].Container = template.Spec.Containers[0]
	got = podTemplate(plain, &plain.Spec.Containers[0])
	assert.Equal(t, "containers, if all fields are those of the step", want.Spec.Containers, got.Spec.Containers)
	assert.Equal(t, "restartPolicy of a template without one", corev1.RestartPolicyNever, got.Spec.RestartPolicy)
}

func setNonZero(v reflect.Value) {
	switch v.Interface().(type) {
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse("7")))
		return
	case metav1.Time:
		v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(1, 0))))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			setNonZero(field)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setNonZero(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		setNonZero(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		setNonZero(key)
		setNonZero(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8:
		v.SetUint(7)
	default:
		panic("setNonZero does not support " + v.Type().String())
	}
}

func overlay(patch string) testbuilder.StepOption {
	return testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.PodTemplate = &runtime.RawExtension{Raw: []byte(patch)} })
}

func TestOverlayPatchesTheTemplateOfOneStep(t *testing.T) {
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "ml"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default", NodeSelector: map[string]string{"pool": "cpu"},
			Tolerations:    []corev1.Toleration{{Key: "spot"}},
			Volumes:        []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			InitContainers: []corev1.Container{{Name: "proxy", Image: "proxy:1"}},
		},
	}
	patch := `{"metadata": {"labels": {"gpu": "true"}}, "spec": {
		"serviceAccountName": "trainer", "nodeSelector": {"pool": "gpu"}, "tolerations": [{"key": "gpu"}],
		"volumes": [{"name": "models", "emptyDir": {}}],
		"initContainers": [{"name": "proxy", "$patch": "delete"}, {"name": "fetch", "image": "fetch:1"}]}}`
	sj := sequence("prep").Step("train", overlay(patch)).Template(template).Obj()
	require.NoError(t, Validate(sj).ToAggregate())
	prep, train := podTemplate(sj, &sj.Spec.Containers[0]).Spec, podTemplate(sj, &sj.Spec.Containers[1]).Spec
	require.True(t, prep.ServiceAccountName == "default" && prep.NodeSelector["pool"] == "cpu" && len(prep.Volumes) == 1, "the step before: %+v", prep)
	want := corev1.PodSpec{
		ServiceAccountName: "trainer", NodeSelector: map[string]string{"pool": "gpu"}, Tolerations: []corev1.Toleration{{Key: "gpu"}},
		Volumes:        []corev1.Volume{{Name: "models", VolumeSource: template.Spec.Volumes[0].VolumeSource}, template.Spec.Volumes[0]},
		InitContainers: []corev1.Container{{Name: "fetch", Image: "fetch:1"}},
		Containers:     []corev1.Container{sj.Spec.Containers[1].Container}, RestartPolicy: corev1.RestartPolicyNever,
	}
	want.Containers[0].Name = "train"
	assert.Equal(t, "Pod of train", want, train)
	labels := podTemplate(sj, &sj.Spec.Containers[1]).Labels
	require.True(t, labels["team"] == "ml" && labels["gpu"] == "true", "labels %v", labels)
}

func TestOverlayIsValidatedStrictly(t *testing.T) {
	for name, test := range map[string]struct{ patch, field, detail string }{
		"a typo":              {`{"spec": {"nodeSelektor": {}}}`, "", `unknown field "spec.nodeSelektor"`},
		"the case of a field": {`{"spec": {"nodeselector": {}}}`, "", `unknown field "spec.nodeselector"`},
		"a wrong type":        {`{"spec": {"nodeSelector": "gpu"}}`, "", "cannot unmarshal string"},
		"a container":         {`{"spec": {"containers": [{"name": "step"}]}}`, "", "cannot have containers"},
		"a list":              {`[]`, "", "must be an object"},
		"restartPolicy":       {`{"spec": {"restartPolicy": "Always"}}`, ".spec.restartPolicy", ""},
		"reserved labels":     {`{"metadata": {"labels": {"yardmaster.dev/step": "x"}}}`, ".metadata.labels[yardmaster.dev/step]", ""},
		"a step's name":       {`{"spec": {"initContainers": [{"name": "build", "image": "x"}]}}`, ".spec.initContainers[0].name", ""},
		"the workspace":       {`{"spec": {"volumes": [{"name": "workspace"}]}}`, ".spec.volumes", ""},
	} {
		t.Run(name, func(t *testing.T) {
			sj := sequence().Step("build", overlay(test.patch)).Workspace(v1alpha1.WorkspaceDelete).Obj()
			errs := Validate(sj)
			field := "spec.containers[0].step.podTemplate" + test.field
			require.True(t, len(errs) > 0 && errs[0].Field == field && strings.Contains(errs[0].Detail, test.detail), "%v, want %s: %q", errs, field, test.detail)
		})
	}
}

func TestRestrictedProfileFillsInWhatIsNotSet(t *testing.T) {
	sj := sequence("build").Step("image", testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(1000)), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_BIND_SERVICE"}}}
	})).Step("mount", testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	})).Template(corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{FSGroup: new(int64(7))}, InitContainers: []corev1.Container{{Name: "init"}},
	}}).Obj()
	sj.Spec.Template.SecurityProfile = v1alpha1.SecurityRestricted
	build := podTemplate(sj, &sj.Spec.Containers[0]).Spec
	want := &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532)), FSGroup: new(int64(7)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	assert.Equal(t, "Pod", want, build.SecurityContext)
	restricted := &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	for _, container := range append(build.InitContainers, build.Containers...) {
		assert.Equal(t, "container "+container.Name, restricted, container.SecurityContext)
	}
	image := podTemplate(sj, &sj.Spec.Containers[1]).Spec.Containers[0].SecurityContext
	require.True(t, *image.RunAsUser == 1000 && len(image.Capabilities.Add) == 1 && len(image.Capabilities.Drop) == 1, "%+v", image)
	mount := podTemplate(sj, &sj.Spec.Containers[2]).Spec.Containers[0].SecurityContext
	require.True(t, mount.AllowPrivilegeEscalation == nil, "a privileged container: %+v", mount)
	sj.Spec.Template.Spec = corev1.PodSpec{OS: &corev1.PodOS{Name: corev1.Windows}, InitContainers: []corev1.Container{{Name: "init"}}}
	windows := podTemplate(sj, &sj.Spec.Containers[0]).Spec
	assert.Equal(t, "Pod for Windows", &corev1.PodSecurityContext{RunAsNonRoot: new(true)}, windows.SecurityContext)
	for _, container := range append(windows.InitContainers, windows.Containers...) {
		require.True(t, container.SecurityContext == nil, "container %s of a Pod for Windows: %+v", container.Name, container.SecurityContext)
	}
	plain := sequence("build").Obj()
	require.True(t, podTemplate(plain, &plain.Spec.Containers[0]).Spec.SecurityContext == nil, "without the profile, the Pod has a security context")
}

func TestWorkspaceIsCreatedBeforeTheFirstStep(t *testing.T) {
	s := newTestEnv(t, sequence("build").Workspace(v1alpha1.WorkspaceDelete).Obj())
	decision := s.decide(nil)
	require.True(t, decision.CreateJob == nil && decision.Workspace != nil, "want a workspace and no Job: %+v", decision)
	got := decision.Workspace.Spec.Resources.Requests[corev1.ResourceStorage]
	require.True(t, got.String() == "1Gi" && len(decision.Workspace.OwnerReferences) == 1, "workspace %+v", decision.Workspace)
	retained := workspaceClaim(sequence("build").Workspace(v1alpha1.WorkspaceRetain).Obj())
	require.True(t, len(retained.OwnerReferences) == 0 && retained.Labels[v1alpha1.LabelSequentialJobUID] != "", "retained: %+v", retained)
}

func TestEveryStepMountsTheWorkspaceUnlessItMountsSomethingElseThere(t *testing.T) {
	elsewhere := testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/workspace"}}
	})
	sj := sequence("build").Step("test", elsewhere).Finally("cleanup").Workspace(v1alpha1.WorkspaceDelete).Obj()
	for i, volume := range []string{"workspace", "scratch", "workspace"} {
		step := &sj.Spec.Containers[i]
		pod := podTemplate(sj, step).Spec
		assert.Equal(t, "mounts of "+step.Name, []corev1.VolumeMount{{Name: volume, MountPath: "/workspace"}}, pod.Containers[0].VolumeMounts)
		assert.Equal(t, "claim of "+step.Name, WorkspaceName(sj), pod.Volumes[0].PersistentVolumeClaim.ClaimName)
	}
}

func withWorkspace() *testbuilder.SequentialJobBuilder {
	return sequence("one", "two").Finally("cleanup").Workspace(v1alpha1.WorkspaceDelete)
}

func loseClaim(s *testEnv)      { s.claim = nil }
func terminateClaim(s *testEnv) { s.claim.DeletionTimestamp = new(metav1.NewTime(s.now)) }

func TestLostWorkspaceFailsTheRun(t *testing.T) {
	// Steps of finally would run without the files as well.
	lost := steps("one: Succeeded", "two: Failed, WorkspaceLost", "cleanup: Failed, WorkspaceLost")
	fails := func(lose func(*testEnv), message string) story {
		return story{
			suspendRun, succeed("one"), lose, resumeRun, lost, created("one"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonWorkspaceLost),
			func(s *testEnv) {
				got, want := s.stepStatus("two").Message, WorkspaceName(s.sj)+" with the workspace "+message
				require.True(s.t, strings.Contains(got, want) && s.createdClaims == 1, "message %q, want %q; %d claims are created", got, want, s.createdClaims)
			},
		}
	}
	ofOlderOperator := func(s *testEnv) { s.sj.Status.Workspace.UID = "" } // which did not record the UID
	runScenarios(t, map[string]scenario{
		"the claim does not exist":             {withWorkspace(), fails(loseClaim, "no longer exists")},
		"the claim is being deleted":           {withWorkspace(), fails(terminateClaim, "is being deleted")},
		"the claim was restored from a backup": {withWorkspace(), fails(func(s *testEnv) { s.claim.UID = "restored" }, "was replaced by another one")},
		"whatever failures are tolerated": {
			sequence("one").Step("two", testbuilder.ContinueOnFailure()).Step("three").Workspace(v1alpha1.WorkspaceDelete), story{
				loseClaim, succeed("one"), steps("one: Succeeded", "two: Failed, WorkspaceLost", "three: Skipped, PreviousStepFailed"),
			},
		},
		// A failed run must not become a successful one.
		"also with Recreate before finally, as the other steps have their outcomes": {
			sequence("one").Finally("cleanup").Workspace(v1alpha1.WorkspaceDelete).RecreateLostWorkspace(), story{
				loseClaim, succeed("one"), steps("one: Succeeded", "cleanup: Failed, WorkspaceLost"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonWorkspaceLost),
			},
		},
		"also a rerun from a later step, but not one from the start": {sequence("one", "two").Workspace(v1alpha1.WorkspaceDelete), story{
			succeed("one"), fail("two"), loseClaim, rerun("Failed"), steps("one: Succeeded", "two: Failed, WorkspaceLost"),
			forgetEvents, rerun("Start"), steps("one: Starting", "two: Pending"),
			events(v1alpha1.EventRerunStarted, v1alpha1.EventWorkspaceLost, v1alpha1.EventJobStarted),
		}},
		"a Job that was suspended is not resumed": {sequence("one").Workspace(v1alpha1.WorkspaceDelete).SuspendImmediately(), story{
			suspendRun, func(s *testEnv) { testbuilder.Job(s.newestJob("one")).Suspended(s.now) }, wait(0), steps("one: Suspended"),
			loseClaim, resumeRun,
			func(s *testEnv) { assert.Equal(s.t, "the Job is suspended", true, isSuspended(s.newestJob("one"))) },
			removeJobs, steps("one: Failed, WorkspaceLost"),
		}},
		"not one of an older operator whose claim exists": {withWorkspace(), story{
			ofOlderOperator, succeed("one"), steps("one: Succeeded", "two: Starting", "cleanup: Pending"),
		}},
		"one of an older operator whose claim does not exist": {withWorkspace(), story{ofOlderOperator, loseClaim, succeed("one"), lost}},
		"one of an older operator whose claim is of another owner": {withWorkspace(), story{
			ofOlderOperator, func(s *testEnv) { s.claim.OwnerReferences, s.claim.Labels = nil, nil }, succeed("one"), lost,
		}},
		"a claim that is being deleted is waited for in a rerun, without deleting the Job and its logs": {
			sequence("one").Workspace(v1alpha1.WorkspaceDelete), story{
				succeed("one"), terminateClaim, rerun("Start"), steps("one: Starting, WorkspaceTerminating"),
				func(s *testEnv) {
					require.True(s.t, s.newestJob("one").DeletionTimestamp.IsZero(), "the Job of the first run is deleted, with its logs")
				},
			},
		},
	})
}

func TestLostWorkspaceRestartsTheRunIfTheSpecSaysSo(t *testing.T) {
	s := startRun(t, withWorkspace().RecreateLostWorkspace()).pass(suspendRun, succeed("one"))
	old, started := s.claim.UID, *s.sj.Status.StartTime
	s.events = nil
	s.pass(
		terminateClaim, resumeRun, steps("one: Pending", "two: Pending", "cleanup: Pending"),
		events(v1alpha1.EventSpecChanged, v1alpha1.EventRerunStarted, v1alpha1.EventResumed, v1alpha1.EventWorkspaceLost),
		wait(0), steps("one: Starting, WorkspaceTerminating", "two: Pending", "cleanup: Pending"), created("one"), // no Job uses this claim
		hasCondition(v1alpha1.ConditionBlocked, "True WorkspaceTerminating: step \"one\": PersistentVolumeClaim "+WorkspaceName(s.sj)+
			" is being deleted, and exists as long as a Pod that uses it; delete these Pods, including finished ones"),
	)
	require.True(t, !s.newestJob("one").DeletionTimestamp.IsZero(), "the Job of the first run remains, and with its Pod the claim")
	next := s.reconcile().RequeueAfter
	require.True(t, next != 0 && next <= minBlockedRetry, "the next decision is after %s, want %s", next, minBlockedRetry)
	s.pass(removeJobs, loseClaim, wait(time.Second), wait(0), created("one", "one"), hasCondition(v1alpha1.ConditionBlocked, "False NotBlocked: "))
	require.True(t, s.claim.UID != old && s.sj.Status.Workspace.UID == s.claim.UID && s.sj.Status.Run == 2, "%+v, claim %s", s.sj.Status, s.claim.UID)
	require.True(t, s.sj.Status.StartTime.Equal(&started), "the deadline, which limits all restarts together, counts from %s", s.sj.Status.StartTime)
	s.pass(succeed("one", "two", "cleanup"), phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted))
}

func TestForeignObjectWithTheNameOfTheWorkspaceIsAConflict(t *testing.T) {
	s := newTestEnv(t, sequence("one").Workspace(v1alpha1.WorkspaceDelete).Obj())
	s.claim = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "foreign"}}
	s.pass(wait(0), steps("one: Starting, NameTaken"), created(), events(v1alpha1.EventNameConflict))
}
