package v1alpha1

import (
	"context"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/session"
)

// maxUserGroups is the number of a user's groups that are recorded.
const maxUserGroups = 256

// mutatePath is the path of the mutating webhook for AgenticSessions.
const mutatePath = "/mutate-yardmaster-dev-v1alpha1-agenticsession"

// userContextField is the field of the spec that identifies the creator.
const userContextField = "userContext"

// SetupAgenticSession adds the webhooks for AgenticSessions to the manager.
func SetupAgenticSession(mgr ctrl.Manager) error {
	mgr.GetWebhookServer().Register(mutatePath, &admission.Webhook{Handler: sessionCreatorHandler{}})
	return agenticSessionValidator(mgr.GetClient()).Setup(mgr)
}

// sessionCreatorHandler records a session's creator. It works on unstructured objects and changes
// nothing else: conversion to the Go types and back would add fields that the user did not set,
// before the API server has validated the object.
type sessionCreatorHandler struct{}

// Handle sets userContext to the requesting user when a session is created. It overwrites what
// the user set, except displayName. An update without userContext keeps the stored value.
func (sessionCreatorHandler) Handle(_ context.Context, request admission.Request) admission.Response {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(request.Object.Raw); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	spec, found, err := unstructured.NestedMap(object.Object, "spec")
	if !found || err != nil {
		return admission.Allowed("") // the API server reports what is invalid
	}
	switch request.Operation {
	case admissionv1.Create:
		spec[userContextField] = creatorContext(&request.UserInfo, spec)
	case admissionv1.Update:
		before := &unstructured.Unstructured{}
		if err := before.UnmarshalJSON(request.OldObject.Raw); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		stored, found, err := unstructured.NestedMap(before.Object, "spec", userContextField)
		if _, isSet := spec[userContextField]; isSet || !found || err != nil {
			return admission.Allowed("")
		}
		spec[userContextField] = stored
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

// creatorContext returns the userContext of the requesting user, with the displayName in the spec.
func creatorContext(user *authenticationv1.UserInfo, spec map[string]any) map[string]any {
	creator := map[string]any{"userId": user.Username}
	if name, found, err := unstructured.NestedString(spec, userContextField, "displayName"); found && err == nil {
		creator["displayName"] = name
	}
	if len(user.Groups) > 0 {
		groups := make([]any, 0, len(user.Groups))
		for _, group := range user.Groups[:min(len(user.Groups), maxUserGroups)] {
			groups = append(groups, group)
		}
		creator["groups"] = groups
	}
	return creator
}

// agenticSessionValidator validates sessions. For what the SessionRunner does not allow it only
// warns: the SessionRunner may change before the session starts, and the reconciler decides.
func agenticSessionValidator(reader client.Reader) *specValidator[*v1alpha1.AgenticSession] {
	return &specValidator[*v1alpha1.AgenticSession]{
		kind:     "AgenticSession",
		object:   &v1alpha1.AgenticSession{},
		specOf:   func(s *v1alpha1.AgenticSession) any { return s.Spec },
		validate: session.Validate,
		warn: func(ctx context.Context, s *v1alpha1.AgenticSession) admission.Warnings {
			return agenticSessionWarnings(ctx, reader, s)
		},
		warnChange: agenticSessionChangeWarnings,
	}
}

func agenticSessionChangeWarnings(before, after *v1alpha1.AgenticSession) admission.Warnings {
	if after.Spec.RunRequest > before.Spec.RunRequest && after.Status.CompletionTime == nil && after.Status.Run > 0 {
		return admission.Warnings{"spec.runRequest: the next run starts when the current run has finished"}
	}
	return nil
}

func agenticSessionWarnings(ctx context.Context, reader client.Reader, s *v1alpha1.AgenticSession) admission.Warnings {
	var warnings admission.Warnings
	if s.Spec.InitialPrompt != "" {
		warnings = append(warnings, "spec.initialPrompt: this field is an alias of spec.prompt; use spec.prompt")
	}
	runner := &v1alpha1.SessionRunner{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.Spec.Runner}, runner)
	switch {
	case client.IgnoreNotFound(err) != nil: // the reconciler reports it
		return warnings
	case err != nil:
		return append(warnings, "spec.runner: SessionRunner "+s.Spec.Runner+" does not exist yet")
	}
	for _, refusal := range session.ValidateWithRunner(s, runner) {
		warnings = append(warnings, refusal.Error())
	}
	return warnings
}
