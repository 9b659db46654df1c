package v1alpha1

import (
	"context"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/session"
)

// maxGroups is how many of a user's groups are noted.
const maxGroups = 256

// mutatePath is where sessions are sent to be completed.
const mutatePath = "/mutate-yardmaster-dev-v1alpha1-agenticsession"

// SetupAgenticSession adds the webhooks for AgenticSessions to the manager.
func SetupAgenticSession(mgr ctrl.Manager) error {
	mgr.GetWebhookServer().Register(mutatePath, &admission.Webhook{Handler: sessionOwner{}})
	return ctrl.NewWebhookManagedBy(mgr, &v1alpha1.AgenticSession{}).
		WithValidator(agenticSessionValidator{mgr.GetClient()}).
		Complete()
}

// sessionOwner notes whose session it is. It changes nothing else: an object that went
// through our types would come back with fields that nobody gave, before the API server has
// checked what was given.
type sessionOwner struct{}

// Handle sets userContext to who makes the request, when a session is created. Whatever was
// given is overwritten, but for the name to show. A manifest that is applied again without
// it does not take it away.
func (sessionOwner) Handle(_ context.Context, request admission.Request) admission.Response {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(request.Object.Raw); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	spec, found, err := unstructured.NestedMap(object.Object, "spec")
	if !found || err != nil {
		return admission.Allowed("") // the API server says what is wrong with it
	}
	switch request.Operation {
	case admissionv1.Create:
		spec[userContext] = creator(&request.UserInfo, spec)
	case admissionv1.Update:
		before := &unstructured.Unstructured{}
		if err := before.UnmarshalJSON(request.OldObject.Raw); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		was, known, err := unstructured.NestedMap(before.Object, "spec", userContext)
		if _, given := spec[userContext]; given || !known || err != nil {
			return admission.Allowed("")
		}
		spec[userContext] = was
	default:
		return admission.Allowed("")
	}
	object.Object["spec"] = spec
	raw, err := object.MarshalJSON()
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, raw)
}

const userContext = "userContext"

// creator is who makes a session, under the name that is given.
func creator(user *authenticationv1.UserInfo, spec map[string]any) map[string]any {
	noted := map[string]any{"userId": user.Username}
	if name, found, err := unstructured.NestedString(spec, userContext, "displayName"); found && err == nil {
		noted["displayName"] = name
	}
	if len(user.Groups) > 0 {
		groups := make([]any, 0, len(user.Groups))
		for _, group := range user.Groups[:min(len(user.Groups), maxGroups)] {
			groups = append(groups, group)
		}
		noted["groups"] = groups
	}
	return noted
}

// agenticSessionValidator asks package session what is wrong with a session.
type agenticSessionValidator struct{ reader client.Reader }

var _ admission.Validator[*v1alpha1.AgenticSession] = agenticSessionValidator{}

// ValidateCreate refuses what is wrong whatever the SessionRunner allows. What that does not
// allow is only warned of: it may be changed before the session's turn comes, and the
// reconciler is the one to decide.
func (v agenticSessionValidator) ValidateCreate(ctx context.Context, s *v1alpha1.AgenticSession) (admission.Warnings, error) {
	return v.warnings(ctx, s), refused("AgenticSession", s.Name, session.Validate(s))
}

// ValidateUpdate does the same. Where the spec stays, it was taken once and must not bar a
// change of something else.
func (v agenticSessionValidator) ValidateUpdate(ctx context.Context, before, after *v1alpha1.AgenticSession) (admission.Warnings, error) {
	if !after.DeletionTimestamp.IsZero() || equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return nil, nil
	}
	warnings := v.warnings(ctx, after)
	if after.Spec.RunRequest > before.Spec.RunRequest && after.Status.CompletionTime == nil && after.Status.Run > 0 {
		warnings = append(warnings, "spec.runRequest: the run goes on; the next begins when it has ended")
	}
	return warnings, refused("AgenticSession", after.Name, session.Validate(after))
}

// ValidateDelete is never asked.
func (agenticSessionValidator) ValidateDelete(context.Context, *v1alpha1.AgenticSession) (admission.Warnings, error) {
	return nil, nil
}

// warnings tell what the SessionRunner does not allow, as far as it is known.
func (v agenticSessionValidator) warnings(ctx context.Context, s *v1alpha1.AgenticSession) admission.Warnings {
	var all admission.Warnings
	if s.Spec.InitialPrompt != "" {
		all = append(all, "spec.initialPrompt: it is an alias; use prompt")
	}
	runner := &v1alpha1.SessionRunner{}
	err := v.reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.Spec.Runner}, runner)
	switch {
	case client.IgnoreNotFound(err) != nil: // nothing is known of it, and the reconciler will say
		return all
	case err != nil:
		return append(all, "spec.runner: there is no SessionRunner "+s.Spec.Runner)
	}
	for _, refusal := range session.ValidateWithRunner(s, runner) {
		all = append(all, refusal.Error())
	}
	return all
}
