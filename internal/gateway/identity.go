package gateway

import (
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// reviewsLast is how long the result of a review is used.
const reviewsLast = 10 * time.Second

// maxTokenBytes bounds tokens. Tokens of ServiceAccounts have about a kilobyte.
const maxTokenBytes = 8 << 10

type identity struct {
	isAuthenticated bool
	user            authenticationv1.UserInfo
	// token is the digest of the token. Two tokens of one user may differ for an authorizer.
	token string
}

// namespace returns the namespace of a ServiceAccount; empty for other users.
func (i *identity) namespace() string {
	account, found := strings.CutPrefix(i.user.Username, "system:serviceaccount:")
	namespace, _, isAccount := strings.Cut(account, ":")
	if !found || !isAccount {
		return ""
	}
	return namespace
}

// reviewer asks the API server who sends requests, and whether the sender is authorized.
type reviewer struct {
	client   client.Client
	audience string
	metrics  *metrics
	tokens   *lookup[identity]
	accesses *lookup[bool]
	// known are the users of tokens that were valid. They have their own shares, so that clients that send invalid tokens from many
	// hosts do not delay them.
	known                           *cache.LRUExpireCache
	ofHosts, ofKnown, ofPermissions *shares
}

// knownLasts is how long a token that was valid is preferred to unknown tokens. It is still reviewed.
const knownLasts = time.Hour

func newReviewer(c client.Client, audience string, m *metrics) *reviewer {
	return &reviewer{
		client: c, audience: audience, metrics: m,
		tokens: newLookup[identity](reviewsLast), accesses: newLookup[bool](reviewsLast), known: cache.NewLRUExpireCache(maxAnswers),
		ofHosts: newAskShares("unknown tokens"), ofKnown: newAskShares("tokens"), ofPermissions: newAskShares("permissions"),
	}
}

// authenticate returns the sender of a request from a host.
func (r *reviewer) authenticate(ctx context.Context, host, authorization string) (*identity, error) {
	scheme, token, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, fail(http.StatusUnauthorized, reasonUnauthenticated, "the header Authorization must be Bearer, a space and the token of a ServiceAccount")
	}
	if len(token) > maxTokenBytes {
		return nil, fail(http.StatusUnauthorized, reasonUnauthenticated, "the token is too long")
	}
	sum := sha256.Sum256([]byte(token))
	digest := string(sum[:])
	by := asker{r.ofHosts, host}
	if user, isKnown := r.known.Get(digest); isKnown {
		name, _ := user.(string)
		by = asker{r.ofKnown, name}
	}
	found, err := r.tokens.find(ctx, by, digest, func(ctx context.Context) (identity, error) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{r.audience}}}
		err := r.create(ctx, "token", review)
		// An authenticator that does not support audiences returns none: its tokens are for the API server.
		valid := review.Status.Authenticated && slices.Contains(review.Status.Audiences, r.audience)
		return identity{isAuthenticated: valid, user: review.Status.User}, err
	})
	switch {
	case err != nil:
		return nil, err
	case !found.isAuthenticated:
		r.known.Remove(digest)
		return nil, fail(http.StatusUnauthorized, reasonUnauthenticated, "the token is not valid, or not for the audience "+r.audience)
	}
	r.known.Add(digest, found.user.Username, knownLasts)
	found.token = digest
	return &found, nil
}

// resource and subresource are the object of the permission of producers.
const (
	resource    = "queues"
	subresource = "jobs"
)

// authorize returns an error unless the user has the verb on the jobs of a Queue.
func (r *reviewer) authorize(ctx context.Context, who *identity, verb, namespace, queue string) error {
	question := strings.Join([]string{who.token, verb, namespace, queue}, "/") // names have no slash
	allowed, err := r.accesses.find(ctx, asker{r.ofPermissions, who.user.Username}, question, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: who.user.Username, Groups: who.user.Groups, UID: who.user.UID, Extra: map[string]authorizationv1.ExtraValue{},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: resource, Subresource: subresource,
				Verb: verb, Namespace: namespace, Name: queue,
			},
		}}
		for key, values := range who.user.Extra {
			review.Spec.Extra[key] = authorizationv1.ExtraValue(values)
		}
		err := r.create(ctx, "access", review)
		return review.Status.Allowed && !review.Status.Denied, err
	})
	switch {
	case err != nil:
		return err
	case !allowed:
		return fail(http.StatusForbidden, reasonForbidden, shorten(who.user.Username)+" needs permission to "+verb+" queues/jobs of "+
			v1alpha1.GroupVersion.Group+" for Queue "+queue+" in namespace "+namespace)
	}
	return nil
}

func (r *reviewer) create(ctx context.Context, kind string, review client.Object) error {
	r.metrics.reviews.WithLabelValues(kind).Inc()
	if err := r.client.Create(ctx, review); err != nil {
		return apiFailure("reviewing the "+kind+" of the request", err)
	}
	return nil
}

// apiFailure reports that the API server did not answer a question. The cause is for the administrator, in the log.
func apiFailure(what string, err error) error {
	return &apiError{fail(http.StatusServiceUnavailable, reasonAPIUnavailable, what+" failed: the API server did not answer the gateway"), err}
}

type apiError struct {
	*failure

	cause error
}

// Unwrap returns the failure and the cause.
func (e *apiError) Unwrap() []error { return []error{e.failure, e.cause} }
