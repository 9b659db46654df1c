package validation

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	jsonpatch "gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/operator/webhook"
)

const (
	schedulesWebhook = "schedules.yardmaster.dev"
	// dryRunTimeout is shorter than the webhook's timeout of 5 s.
	dryRunTimeout = 3 * time.Second
	// maxConcurrentDryRuns is the number of Jobs of one Schedule that are tried at the same time.
	maxConcurrentDryRuns = 4
)

// SetupSchedule adds the webhooks for Schedules to the manager.
func SetupSchedule(mgr ctrl.Manager) error {
	mgr.GetWebhookServer().Register(webhook.MutatingPath(schedulesWebhook), &admission.Webhook{Handler: scheduleOwnerHandler{}})
	return scheduleValidator(mgr.GetClient()).Setup(mgr)
}

// scheduleValidator validates Schedules. It tries to create a run with the operator's permissions, and with the checks of fields that
// kubectl makes by default.
func scheduleValidator(c client.Client) *specValidator[*v1alpha1.Schedule] {
	strict := client.WithFieldValidation(c, metav1.FieldValidationStrict)
	return &specValidator[*v1alpha1.Schedule]{
		kind:     "Schedule",
		webhook:  schedulesWebhook,
		specOf:   func(s *v1alpha1.Schedule) any { return s.Spec },
		validate: schedule.Validate,
		try: func(ctx context.Context, s *v1alpha1.Schedule) (admission.Warnings, field.ErrorList) {
			return tryRun(ctx, strict, s)
		},
		// Other changes, such as a suspension, must be possible although runs are refused.
		needsTry: func(before, after *v1alpha1.Schedule) bool {
			return !equality.Semantic.DeepEqual(before.Spec.SequentialJob, after.Spec.SequentialJob) ||
				!equality.Semantic.DeepEqual(before.Spec.AgenticSession, after.Spec.AgenticSession)
		},
	}
}

// tryRun creates a run of the Schedule in a dry run, and then what the run would create. What fails runs is an error, and what may only
// keep them from starting now is a warning: quotas, the admission of Pods, and SessionRunners change.
func tryRun(ctx context.Context, c client.Client, s *v1alpha1.Schedule) (admission.Warnings, field.ErrorList) {
	if s.Spec.Message != nil {
		return nil, nil // jobs are sent to brokers, which do not try them
	}
	path := field.NewPath("spec", schedule.TemplateField(&s.Spec))
	if s = s.DeepCopy(); s.UID == "" {
		s.UID = "dry-run" // a new Schedule may have no UID yet
	}
	run, err := schedule.NewRun(s, &v1alpha1.ScheduledRun{Name: s.Name + "-dry-run", ScheduledTime: new(metav1.Now())})
	if err != nil {
		return nil, field.ErrorList{field.Invalid(path, field.OmitValueType{}, err.Error())}
	}
	ctx, cancel := context.WithTimeout(ctx, dryRunTimeout)
	defer cancel()
	switch err = c.Create(ctx, run, client.DryRunAll); {
	case apierrors.IsAlreadyExists(err):
		return nil, nil
	case err != nil:
		return refusalOf(path, "its runs", err)
	case s.Spec.AgenticSession != nil:
		return trySession(ctx, c, run, path)
	default:
		return trySteps(ctx, c, run, path)
	}
}

// refusalOf returns an error if the API server refuses an object whenever it is created, and otherwise a warning.
func refusalOf(path *field.Path, objects string, err error) (admission.Warnings, field.ErrorList) {
	switch class := decision.ClassOf(err); {
	case class == decision.Invalid || class == decision.PolicyDenied || apierrors.IsBadRequest(err):
		return nil, field.ErrorList{field.Invalid(path, field.OmitValueType{}, objects+" would be refused: "+err.Error())}
	case class == decision.QuotaExceeded:
		return admission.Warnings{fmt.Sprintf("%s: %s would not start now: %v", path, objects, err)}, nil
	default:
		return admission.Warnings{fmt.Sprintf("%s: whether %s are accepted is unknown: %v", path, objects, err)}, nil
	}
}

// trySteps creates the Jobs of a run, and their Pods, in a dry run. Their acceptance is unknown if the time is not enough for all.
func trySteps(ctx context.Context, c client.Client, run *unstructured.Unstructured, path *field.Path) (admission.Warnings, field.ErrorList) {
	sj := &v1alpha1.SequentialJob{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(run.Object, sj); err != nil || !sequentialjob.IsManaged(sj) {
		return nil, nil // the API server has accepted it
	}
	jobs := sequentialjob.FirstJobs(sj)
	warnings, errs := make([]admission.Warnings, len(jobs)), make([]field.ErrorList, len(jobs))
	var group errgroup.Group
	group.SetLimit(maxConcurrentDryRuns)
	for i, job := range jobs {
		group.Go(func() error {
			step := fmt.Sprintf("step %q of its runs", job.Labels[v1alpha1.LabelStep])
			if err := c.Create(ctx, job, client.DryRunAll); err != nil {
				warnings[i], errs[i] = refusalOf(path, "Jobs of "+step, err)
				return nil
			}
			warnings[i] = tryPod(ctx, c, sequentialjob.PodOf(job), path, step)
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	return slices.Concat(warnings...), slices.Concat(errs...)
}

// trySession checks a session against its SessionRunner, and creates its Pod in a dry run.
func trySession(ctx context.Context, c client.Client, run *unstructured.Unstructured, path *field.Path) (admission.Warnings, field.ErrorList) {
	session, runner := &v1alpha1.AgenticSession{}, &v1alpha1.SessionRunner{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(run.Object, session); err != nil {
		return nil, nil // the API server has accepted it
	}
	var warnings admission.Warnings
	for _, warning := range agenticSessionWarnings(ctx, c, session) {
		warnings = append(warnings, fmt.Sprintf("%s: %s", path, warning))
	}
	if err := c.Get(ctx, client.ObjectKey{Namespace: session.Namespace, Name: session.Spec.Runner}, runner); err != nil {
		return warnings, nil // a warning says so
	}
	if pod := agenticsession.FirstPod(session, runner); pod != nil {
		warnings = append(warnings, tryPod(ctx, c, pod, path, "its runs")...)
	}
	return warnings, nil
}

// tryPod creates a Pod in a dry run. It returns a warning if the API server refuses the Pod. The ServiceAccount may be created later,
// and the operator may not have the permission to create Pods.
func tryPod(ctx context.Context, c client.Client, pod *corev1.Pod, path *field.Path, of string) admission.Warnings {
	err := c.Create(ctx, pod, client.DryRunAll)
	switch decision.ClassOf(err) {
	case decision.Invalid, decision.PolicyDenied, decision.QuotaExceeded:
		return admission.Warnings{fmt.Sprintf("%s: Pods of %s would be refused now: %v", path, of, err)}
	default:
		return nil
	}
}

// scheduleOwnerHandler records in the template of sessions the user who created or last changed it: the sessions act for this user.
// It decodes only the template: the API server has not validated the object yet.
type scheduleOwnerHandler struct{}

// Handle sets userContext of the template to the requesting user if the template is new or differs from the
// stored template. Otherwise it keeps the stored value.
func (scheduleOwnerHandler) Handle(_ context.Context, request admission.Request) admission.Response {
	template, err := readSessionTemplate(request.Object.Raw)
	switch {
	case err != nil:
		return admission.Errored(http.StatusBadRequest, err)
	case template == nil:
		return admission.Allowed("")
	}
	stored := map[string]any(nil)
	if request.Operation == admissionv1.Update {
		if stored, err = readSessionTemplate(request.OldObject.Raw); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
	}
	given, storedContext := template[userContextField], stored[userContextField]
	delete(template, userContextField)
	delete(stored, userContextField)
	isUnchanged := stored != nil && equality.Semantic.DeepEqual(template, stored)
	if isUnchanged && (given == nil || equality.Semantic.DeepEqual(given, storedContext)) {
		if storedContext == nil {
			return admission.Allowed("")
		}
		return setTemplateContext(storedContext)
	}
	return setTemplateContext(creatorContext(&request.UserInfo))
}

const userContextField = "userContext"

// readSessionTemplate returns spec.agenticSession.spec of a Schedule; nil if it is not an object.
func readSessionTemplate(raw []byte) (map[string]any, error) {
	var object struct {
		Spec struct {
			AgenticSession struct {
				Spec any `json:"spec"`
			} `json:"agenticSession"`
		} `json:"spec"`
	}
	if err := utiljson.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	template, _ := object.Spec.AgenticSession.Spec.(map[string]any)
	return template, nil
}

func setTemplateContext(userContext any) admission.Response {
	return admission.Patched("", jsonpatch.NewOperation("add", "/spec/agenticSession/spec/userContext", userContext))
}
