package modelproxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	// promptOverhead is how many tokens a provider adds to a prompt, such as its instructions for tools.
	promptOverhead = 4096
	// maxSearches is how often a model searches the web in one request at most, if the request does not say.
	maxSearches = 10
	// maxDepth bounds the nesting of requests.
	maxDepth = 256
)

// provider is the format of an API.
type provider struct {
	url string
	// key is the key of the Secret, and the variable in which agents expect it.
	key string
	// parse returns nil for a path that is not known.
	parse func(in *incoming) (*request, error)
	meter func() meter
	// authorize sets the provider's key, and token returns the token that an agent sent in its place.
	authorize func(header http.Header, key string)
	token     func(header http.Header, query url.Values) string
	// failure returns the body of an error.
	failure func(status int, message string) any
}

var providers = map[string]*provider{"Anthropic": anthropic, "OpenAI": openAI, "Google": google}

// incoming is a request of an agent.
type incoming struct {
	method, path string
	body         []byte
	// limited means that the request must have an upper bound.
	limited bool
	prices  Prices

	fields map[string]json.RawMessage
	// opaque means that the bytes of the body do not bound the tokens of the prompt, as with images.
	opaque bool
}

// request is what the proxy sends.
type request struct {
	body []byte
	// metered requests have a price, unless their model is not known and the session has no budget.
	metered bool
	price   *Price
	// output is the largest output in tokens.
	output int64
	bound  bound
}

// meter reads the usage in a response, of which each JSON document is an event.
type meter interface {
	event(raw []byte) error
	// usage is complete at the end of the response. With promptKnown, an incomplete usage has the whole prompt.
	usage() (u Usage, promptKnown, complete bool)
}

// free returns a request without a cost.
func (in *incoming) free() *request { return &request{body: in.body} }

// refuse returns an error for something whose cost has no upper bound, or cannot be read in the response.
func refuse(what string) error {
	return fmt.Errorf("the proxy of the model cannot price %s, and the session has a maxCostUSD", what)
}

// metered returns a request whose output has at most the given number of tokens; 0 if the request does not say. hosted is whether the
// provider runs tools, with further prompts, before it answers.
func (in *incoming) metered(model string, output, answers, searches int64, hosted bool) (*request, error) {
	r := &request{body: in.body, metered: true}
	price, found := in.prices.find(model)
	switch {
	case !found && in.limited:
		return nil, fmt.Errorf("the model %q has no price, and the session has a maxCostUSD; an administrator can add it to spec.model.prices of the SessionRunner", model)
	case !found:
		r.bound.unpriced = 1
		return r, nil
	}
	prompt := min(int64(len(in.body))+promptOverhead, price.MaxInputTokens)
	if in.opaque || hosted {
		prompt = price.MaxInputTokens
	}
	const most = 1e6 // more is refused by each provider, and would overflow
	if output <= 0 {
		output = price.MaxOutputTokens
	}
	answers, searches = min(max(answers, 1), most), min(searches, most)
	r.output = min(output, most) * answers
	rounds := int64(1)
	if hosted { // each call of a tool is a further prompt
		rounds += max(searches, maxSearches)
	}
	const mostMicros = 1e15
	micros := float64(price.mostExpensive(prompt, r.output))*float64(rounds) + float64(price.cost(Usage{Searches: searches}))
	r.price, r.bound = &price, bound{micros: int64(min(micros, mostMicros)), alone: hosted}
	return r, nil
}

// costOf returns what a response cost, and whether it has an unknown cost. What a response did not say costs its upper bound.
func (r *request) costOf(m meter, failed bool) (micros int64, incomplete bool) {
	u, promptKnown, complete := m.usage()
	valid := u.isValid()
	switch {
	case r.price == nil:
		return 0, true
	case !valid, failed && !promptKnown, !complete && !promptKnown, r.bound.alone && (failed || !complete):
		return r.bound.micros, false
	case failed || !complete:
		u.Output = max(r.output, u.Output)
		return r.price.cost(u), false
	}
	return r.price.cost(u), false
}

// opaqueNames are the names and types of fields whose content may be a prompt of any length.
var opaqueNames = []string{
	"source", "image_url", "file_id", "file_url", "file_data", "input_audio", "previous_response_id", "conversation", "item_reference", "compaction",
	"compaction_summary", "inlineData", "inline_data", "fileData", "cachedContent", "cached_content",
}

// read reads the fields of the body. It refuses a name that occurs twice in an object: the provider could read the other one.
func (in *incoming) read() error {
	if err := in.inspect(); err != nil {
		return fmt.Errorf("the request is not valid: %w", err)
	}
	return json.Unmarshal(in.body, &in.fields)
}

func (in *incoming) inspect() error {
	type object struct {
		names  map[string]bool
		isName bool
	}
	decoder := json.NewDecoder(bytes.NewReader(in.body))
	decoder.UseNumber()
	var open []*object // nil for a list
	for first := true; first || len(open) > 0; first = false {
		token, err := decoder.Token()
		switch {
		case err != nil:
			return err
		case token == json.Delim('}') || token == json.Delim(']'):
			open = open[:len(open)-1]
			continue
		case first && token != json.Delim('{'):
			return errors.New("it is not an object")
		case len(open) > maxDepth:
			return errors.New("it is nested too deeply")
		}
		text, isText := token.(string)
		if !first && open[len(open)-1] != nil {
			inside := open[len(open)-1]
			inside.isName = !inside.isName
			if inside.isName {
				if inside.names[text] {
					return fmt.Errorf("%q occurs twice", text)
				}
				inside.names[text] = true
			}
		}
		switch {
		case isText:
			in.opaque = in.opaque || slices.Contains(opaqueNames, text)
		case token == json.Delim('{'):
			open = append(open, &object{names: map[string]bool{}})
		case token == json.Delim('['):
			open = append(open, nil)
		}
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("it has data after its object")
	}
	return nil
}

// field reads a field into a value, and reports whether it is there.
func (in *incoming) field(into any, names ...string) (found bool, err error) {
	for _, name := range names {
		raw, isSet := in.fields[name]
		if !isSet || string(raw) == "null" {
			continue
		}
		if found {
			return true, fmt.Errorf("%s and %s are the same field", names[0], name)
		}
		found = true
		if err := json.Unmarshal(raw, into); err != nil {
			return true, fmt.Errorf("the field %s is not valid", name)
		}
	}
	return found, nil
}

// fieldError returns the first error of reads of fields.
func fieldError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func bearer(header http.Header) string {
	token, _ := strings.CutPrefix(header.Get("Authorization"), "Bearer ")
	return token
}
