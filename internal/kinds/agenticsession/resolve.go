package agenticsession

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

var defaultWorkspaceSize = resource.MustParse("10Gi")

// runnerSettings are the settings of a session, within the limits of its SessionRunner.
type runnerSettings struct {
	runner *v1alpha1.SessionRunner
	// template has the fields of the SessionRunner's template that exist: see templateOf.
	template  *corev1.PodTemplateSpec
	image     string
	resources corev1.ResourceRequirements
	// persistent means that the workspace is a PersistentVolumeClaim.
	persistent    bool
	storageClass  *string
	workspaceSize resource.Quantity
	accessMode    corev1.PersistentVolumeAccessMode
	// envFrom are the variables of the session's envFrom, sorted by name.
	envFrom []corev1.EnvVar
}

// container returns the runner's container in the template.
func (r *runnerSettings) container() *corev1.Container { return &r.template.Spec.Containers[0] }

// acceptance returns the settings of a session, nil if it is not accepted, and its condition SpecAccepted.
func acceptance(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner) (*runnerSettings, decision.State) {
	errs := Validate(s)
	reason := v1alpha1.ReasonInvalid
	if runner == nil {
		if len(errs) > 0 {
			return nil, decision.False(reason, errs.ToAggregate().Error())
		}
		return nil, decision.State{
			Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonRunnerNotFound,
			Message: "SessionRunner " + s.Spec.Runner + " does not exist; create it or set spec.runner",
		}
	}
	if len(errs) == 0 {
		reason = v1alpha1.ReasonNotAllowed
	}
	settings, refused := resolveSettings(s, runner)
	if errs = append(errs, refused...); len(errs) > 0 {
		return nil, decision.False(reason, errs.ToAggregate().Error())
	}
	return settings, decision.True(v1alpha1.ReasonAccepted, "")
}

// runnerChecks compare a session with the limits of its SessionRunner, and resolve the settings.
var runnerChecks = []func(*runnerSettings, *v1alpha1.AgenticSession) field.ErrorList{
	(*runnerSettings).validateRunner,
	(*runnerSettings).resolveImage,
	(*runnerSettings).resolveResources,
	(*runnerSettings).resolveWorkspace,
	(*runnerSettings).checkVariablesAllowed,
	(*runnerSettings).checkSecretMounts,
	(*runnerSettings).resolveEnvFrom,
	(*runnerSettings).checkActivityFields,
	(*runnerSettings).checkProxyUse,
	(*runnerSettings).checkModel,
}

// resolveSettings returns the settings of a session, and an error for each field that exceeds the limits of its
// SessionRunner.
func resolveSettings(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner) (*runnerSettings, field.ErrorList) {
	settings := &runnerSettings{runner: runner, template: templateOf(&runner.Spec)}
	var errs field.ErrorList
	for _, check := range runnerChecks {
		errs = append(errs, check(settings, s)...)
	}
	return settings, errs
}

// ValidateWithRunner returns an error for each field of a session that exceeds the limits of its
// SessionRunner.
func ValidateWithRunner(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner) field.ErrorList {
	_, errs := resolveSettings(s, runner)
	return errs
}

// validateRunner reports the errors of the SessionRunner for spec.runner, the only field with which a session can avoid them.
func (r *runnerSettings) validateRunner(*v1alpha1.AgenticSession) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range ValidateRunner(r.runner) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "runner"), r.runner.Name, "the SessionRunner's "+problem.Error()))
	}
	return errs
}

// resolveImage accepts only images that the SessionRunner names exactly: a pattern could match unintended images.
func (r *runnerSettings) resolveImage(s *v1alpha1.AgenticSession) field.ErrorList {
	spec := &r.runner.Spec
	r.image = cmp.Or(s.Spec.Image, spec.Image)
	if r.image == spec.Image || slices.Contains(spec.Allowed.Images, r.image) {
		return nil
	}
	return field.ErrorList{field.NotSupported(field.NewPath("spec", "image"), r.image, append([]string{spec.Image}, spec.Allowed.Images...))}
}

// images returns the containers of a session's Pod, except for the network check, with their names and images only.
func (r *runnerSettings) images(s *v1alpha1.AgenticSession) *corev1.PodSpec {
	spec := &r.runner.Spec
	pod := &corev1.PodSpec{Containers: []corev1.Container{{Name: v1alpha1.RunnerContainer, Image: r.image}}}
	for i := range r.template.Spec.InitContainers {
		sidecar := &r.template.Spec.InitContainers[i]
		pod.InitContainers = append(pod.InitContainers, corev1.Container{Name: sidecar.Name, Image: sidecar.Image})
	}
	if r.usesGit(s) {
		pod.InitContainers = append(pod.InitContainers, corev1.Container{Name: GitContainer, Image: cmp.Or(spec.Git.Image, spec.Image)})
	}
	if spec.Archive != nil {
		pod.InitContainers = append(pod.InitContainers, corev1.Container{Name: ArchiveContainer, Image: cmp.Or(spec.Archive.Image, spec.Image)})
	}
	if spec.Model != nil {
		pod.InitContainers = append(pod.InitContainers, corev1.Container{Name: ModelContainer, Image: spec.Image})
	}
	return pod
}

func (r *runnerSettings) resolveWorkspace(s *v1alpha1.AgenticSession) field.ErrorList {
	maxSize := defaultWorkspaceSize
	if r.runner.Spec.Limits.MaxWorkspaceSize != nil {
		maxSize = *r.runner.Spec.Limits.MaxWorkspaceSize
	}
	r.storageClass, r.workspaceSize = r.runner.Spec.Workspace.StorageClassName, defaultWorkspaceSize
	if r.workspaceSize.Cmp(maxSize) > 0 {
		r.workspaceSize = maxSize
	}
	r.accessMode = cmp.Or(r.runner.Spec.Workspace.AccessMode, corev1.ReadWriteOnce)
	r.persistent = s.Spec.ContinueFrom != nil || s.Spec.Workspace != nil
	workspace, at := s.Spec.Workspace, field.NewPath("spec", "workspace")
	if workspace == nil {
		return nil
	}
	var errs field.ErrorList
	if workspace.Size != nil {
		r.workspaceSize = *workspace.Size
		if r.workspaceSize.Sign() <= 0 {
			errs = append(errs, field.Invalid(at.Child("size"), r.workspaceSize.String(), "must be greater than zero"))
		}
		if r.workspaceSize.Cmp(maxSize) > 0 {
			errs = append(errs, field.Invalid(at.Child("size"), r.workspaceSize.String(), "SessionRunner "+r.runner.Name+" allows at most "+maxSize.String()))
		}
	}
	return errs
}

// checkVariablesAllowed rejects variables that the SessionRunner sets, or that would change its command.
func (r *runnerSettings) checkVariablesAllowed(s *v1alpha1.AgenticSession) field.ErrorList {
	var errs field.ErrorList
	for _, variable := range r.container().Env {
		if _, set := s.Spec.EnvironmentVariables[variable.Name]; set {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "environmentVariables").Key(variable.Name), "SessionRunner "+r.runner.Name+" sets this variable"))
		}
	}
	for _, name := range sortedKeys(s.Spec.EnvironmentVariables) {
		if r.isExpandedInCommand(name) {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "environmentVariables").Key(name), "the variable would replace $("+name+") in the command of SessionRunner "+r.runner.Name))
		}
	}
	return errs
}

// checkActivityFields rejects fields without effect: only a runner with a Lease can report that
// it is idle or finished.
func (r *runnerSettings) checkActivityFields(s *v1alpha1.AgenticSession) field.ErrorList {
	if r.runner.Spec.ActivityLease {
		return nil
	}
	var errs field.ErrorList
	at, detail := field.NewPath("spec"), "SessionRunner "+r.runner.Name+" has no activityLease, so activity cannot be measured"
	if decision.DurationOr(s.Spec.Limits.InactivityTimeout, 0) > 0 {
		errs = append(errs, field.Forbidden(at.Child("limits", "inactivityTimeout"), detail))
	}
	if s.Spec.Interactive && s.Spec.StopOnRunFinished {
		errs = append(errs, field.Forbidden(at.Child("stopOnRunFinished"), detail))
	}
	return errs
}

// isExpandedInCommand reports whether Kubernetes replaces $(name) in the SessionRunner's command or args by the value
// of a variable that a session sets. In a shell script, such as `echo $(date)`, the value would be executed.
func (r *runnerSettings) isExpandedInCommand(name string) bool {
	runner := r.container()
	if slices.ContainsFunc(runner.Env, func(variable corev1.EnvVar) bool { return variable.Name == name }) {
		return false // a session cannot change a variable of its SessionRunner
	}
	return slices.ContainsFunc(slices.Concat(runner.Command, runner.Args), func(text string) bool {
		return strings.Contains(strings.ReplaceAll(text, "$$", ""), "$("+name+")")
	})
}

func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
