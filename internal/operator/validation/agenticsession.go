package validation

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	jsonpatch "gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/operator/webhook"
)

const agenticSessionsWebhook = "agenticsessions.yardmaster.dev"

// selfReviewTimeout is shorter than the webhook's timeout of 5 s.
const selfReviewTimeout = 3 * time.Second

// SetupAgenticSession adds the webhooks for AgenticSessions to the manager.
func SetupAgenticSession(mgr ctrl.Manager) error {
	mgr.GetWebhookServer().Register(webhook.MutatingPath(agenticSessionsWebhook), &admission.Webhook{Handler: sessionCreatorHandler{&operatorUser{client: mgr.GetClient()}}})
	return agenticSessionValidator(mgr.GetClient()).Setup(mgr)
}

// sessionCreatorHandler records a session's creator. It decodes only spec.userContext: the API server has not validated the object
// yet, which may be large and of any shape.
type sessionCreatorHandler struct {
	operator *operatorUser
}

// Handle sets userContext to the requesting user when a session is created, whatever is given. An update without userContext keeps
// the stored value. A session that the operator creates for a Schedule belongs to the user in the
// Schedule's template.
func (h sessionCreatorHandler) Handle(ctx context.Context, request admission.Request) admission.Response {
	given, found, err := readUserContext(request.Object.Raw)
	switch {
	case err != nil:
		return admission.Errored(http.StatusBadRequest, err)
	case !found:
		return admission.Allowed("") // the API server reports the missing spec
	case request.Operation == admissionv1.Create && given != nil && isOfSchedule(request.Object.Raw) && h.operator.is(ctx, request.UserInfo.Username):
		return admission.Allowed("")
	case request.Operation == admissionv1.Create:
		return setUserContext(creatorContext(&request.UserInfo))
	case request.Operation != admissionv1.Update || given != nil:
		return admission.Allowed("")
	}
	stored, _, err := readUserContext(request.OldObject.Raw)
	switch {
	case err != nil:
		return admission.Errored(http.StatusBadRequest, err)
	case stored == nil:
		return admission.Allowed("")
	}
	return setUserContext(stored)
}

// readUserContext returns the JSON of spec.userContext in a session, nil if it is not set, and whether the session has a spec.
func readUserContext(session []byte) (userContext json.RawMessage, found bool, err error) {
	var object struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := utiljson.Unmarshal(session, &object); err != nil {
		return nil, false, err
	}
	if len(object.Spec) == 0 || object.Spec[0] != '{' {
		return nil, false, nil
	}
	var spec struct {
		UserContext json.RawMessage `json:"userContext"`
	}
	err = utiljson.Unmarshal(object.Spec, &spec)
	return spec.UserContext, true, err
}

func setUserContext(userContext any) admission.Response {
	return admission.Patched("", jsonpatch.NewOperation("add", "/spec/userContext", userContext))
}

// creatorContext returns the userContext of the requesting user.
func creatorContext(user *authenticationv1.UserInfo) *v1alpha1.UserContext {
	return &v1alpha1.UserContext{UserID: user.Username}
}

// agenticSessionValidator validates sessions. It only warns of refusals by the SessionRunner, which may change before the session
// starts: the reconciler decides.
func agenticSessionValidator(reader client.Reader) *specValidator[*v1alpha1.AgenticSession] {
	return &specValidator[*v1alpha1.AgenticSession]{
		kind:     "AgenticSession",
		webhook:  agenticSessionsWebhook,
		specOf:   func(s *v1alpha1.AgenticSession) any { return s.Spec },
		validate: agenticsession.Validate,
		warn: func(ctx context.Context, s *v1alpha1.AgenticSession) admission.Warnings {
			return agenticSessionWarnings(ctx, reader, s)
		},
		warnChange: func(before, after *v1alpha1.AgenticSession) admission.Warnings {
			isRequested := agenticsession.IsRerunRequested(after, &after.Status) && !equality.Semantic.DeepEqual(before.Spec.Rerun, after.Spec.Rerun)
			if isRequested && after.Status.CompletionTime == nil && after.Status.Run > 0 {
				return admission.Warnings{"spec.rerun: the next run starts when the current run has finished"}
			}
			return nil
		},
	}
}

func agenticSessionWarnings(ctx context.Context, reader client.Reader, s *v1alpha1.AgenticSession) admission.Warnings {
	var warnings admission.Warnings
	runner := &v1alpha1.SessionRunner{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.Spec.Runner}, runner)
	switch {
	case client.IgnoreNotFound(err) != nil: // the reconciler reports it
		return warnings
	case err != nil:
		return append(warnings, "spec.runner: SessionRunner "+s.Spec.Runner+" does not exist yet")
	}
	for _, refusal := range agenticsession.ValidateWithRunner(s, runner) {
		warnings = append(warnings, refusal.Error())
	}
	return warnings
}

// operatorUser is the operator's own user in the API server.
type operatorUser struct {
	client client.Writer

	mutex sync.Mutex
	name  string
}

// is reports whether a user is the operator. If the operator's own name cannot be read, no user is.
func (o *operatorUser) is(ctx context.Context, user string) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.name == "" {
		ctx, cancel := context.WithTimeout(ctx, selfReviewTimeout)
		defer cancel()
		review := &authenticationv1.SelfSubjectReview{}
		if err := o.client.Create(ctx, review); err != nil {
			return false
		}
		o.name = review.Status.UserInfo.Username
	}
	return o.name != "" && o.name == user
}

func isOfSchedule(raw []byte) bool {
	var object struct {
		Metadata struct {
			OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if err := utiljson.Unmarshal(raw, &object); err != nil {
		return false
	}
	return slices.ContainsFunc(object.Metadata.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.Kind == "Schedule" && owner.Controller != nil && *owner.Controller
	})
}
