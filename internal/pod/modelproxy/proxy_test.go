package modelproxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

const (
	testKey = "sk-key-of-the-provider"
	// A response of the model costs one dollar: 1000 tokens. Its upper bound is 1200 tokens.
	testPrices = `{replace: true, models: {m: {input: 0.000001, output: 1000, maxInputTokens: 1000, maxOutputTokens: 1200}}}`
)

// api is a kind of request, with the responses of a provider that cost one dollar.
type api struct {
	provider, path, body, whole string
	stream                      []string
}

var apis = map[string]api{
	"Messages": {
		"Anthropic", "/v1/messages", `{"model":"m","max_tokens":1200,"messages":[]%s}`,
		`{"type":"message","usage":{"input_tokens":10,"output_tokens":1000}}`,
		[]string{
			`{"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":1}}}`,
			`{"type":"content_block_delta","delta":{"text":"Hello"}}`,
			`{"type":"message_delta","usage":{"output_tokens":1000}}`, `{"type":"message_stop"}`,
		},
	},
	"Responses": {
		"OpenAI", "/v1/responses", `{"model":"m","input":"x"%s}`,
		`{"object":"response","status":"completed","usage":{"input_tokens":10,"output_tokens":1000}}`,
		[]string{
			`{"type":"response.created","response":{"status":"in_progress","usage":null}}`, `{"type":"response.output_text.delta","delta":"Hello"}`,
			`{"type":"response.output_text.delta","delta":"Hello"}`, `{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":10,"output_tokens":1000}}}`,
		},
	},
	"Chat Completions": {
		"OpenAI", "/v1/chat/completions", `{"model":"m","messages":[]%s}`,
		`{"object":"chat.completion","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":1000}}`,
		[]string{
			`{"object":"chat.completion.chunk","choices":[{"delta":{}}],"usage":null}`, `{"object":"chat.completion.chunk","choices":[{"delta":{"content":"Hello"}}]}`,
			`{"object":"chat.completion.chunk","choices":[{"finish_reason":"stop"}]}`, `{"object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":1000}}`,
		},
	},
	"Gemini": {
		"Google", "/v1beta/models/m:generateContent", `{"contents":[]%s}`,
		`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":600,"thoughtsTokenCount":400}}`,
		[]string{
			`{"candidates":[{}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":1}}`, `{"candidates":[{}]}`, `{"candidates":[{}]}`,
			`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":600,"thoughtsTokenCount":400}}`,
		},
	},
}

// model is a provider's server. It counts what it charges for.
type model struct {
	*httptest.Server

	api      api
	behavior string
	charged  atomic.Int64
	wrongKey atomic.Int64
}

// behaviors of a provider or of the connection to it, and what a response then costs.
var behaviors = map[string]int64{
	"answers": 1, "aborts": 1, "aborts at once": 1, "garbage": 1, "empty": 1, "no usage": 1, "negative usage": 1, "reports an error": 1, "an endless line": 1, "silent": 1, "gateway timeout": 1,
	"overloaded": 0, "internal error": 0, "bad request": 0, "refuses the key": 0, "redirects": 0,
}

func newModel(t *testing.T, a api, behavior string) *model {
	t.Helper()
	m := &model{api: a, behavior: behavior}
	m.Server = httptest.NewServer(m)
	t.Cleanup(func() { m.CloseClientConnections(); m.Close() })
	return m
}

var failures = map[string]int{"overloaded": 529, "internal error": 500, "gateway timeout": 504, "bad request": 400, "refuses the key": 401, "redirects": 307}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	isStream := strings.Contains(string(body), `"stream":true`) || strings.Contains(r.URL.Path, "stream")
	if !slices.Contains([]string{r.Header.Get("X-Api-Key"), r.Header.Get("X-Goog-Api-Key"), r.Header.Get("Authorization")}, testKey) && r.Header.Get("Authorization") != "Bearer "+testKey {
		m.wrongKey.Add(1)
	}
	m.charged.Add(behaviors[m.behavior])
	if status := failures[m.behavior]; status != 0 {
		w.Header().Set("Location", "http://elsewhere.example/")
		http.Error(w, `{"error":{"message":"`+testKey+`"}}`, status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	events := []string{m.api.whole}
	if isStream {
		w.Header().Set("Content-Type", "text/event-stream")
		events = m.api.stream
		if m.api.path == "/v1/chat/completions" && !strings.Contains(string(body), `"stream_options":{"include_usage":true}`) {
			events = events[:3]
		}
	}
	if broken, isBroken := map[string][]string{
		"garbage": {`{"type":`, "]]"}, "empty": nil, "no usage": {`{"type":"message","object":"x","candidates":[]}`},
		"negative usage": {strings.ReplaceAll(events[len(events)-1], "10,", "-10,")}, "reports an error": {`{"type":"error","error":{"message":"overloaded"}}`},
	}[m.behavior]; isBroken {
		events = broken
	}
	for i, event := range events {
		if m.behavior == "aborts at once" || m.behavior == "aborts" && (i == len(events)-1 || !isStream) {
			if !isStream && m.behavior == "aborts" {
				_, _ = io.WriteString(w, event[:len(event)/2])
				_ = http.NewResponseController(w).Flush()
			}
			panic(http.ErrAbortHandler)
		}
		if m.behavior == "silent" && i == len(events)/2 {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		if m.behavior == "an endless line" {
			event += strings.Repeat(" ", 200<<10)
		}
		if isStream {
			event = "event: x\ndata: " + event + "\n\n"
		}
		_, _ = io.WriteString(w, event)
		_ = http.NewResponseController(w).Flush()
	}
}

// container is the proxy with its volumes, which survive its restarts.
type container struct {
	t       *testing.T
	options options
	proxy   *proxy
	server  *httptest.Server
	// silence is how long the provider may be silent.
	silence time.Duration
}

func newContainer(t *testing.T, provider, url, limit string) *container {
	t.Helper()
	c := &container{t: t, silence: 200 * time.Millisecond, options: options{provider: provider, url: url, keys: t.TempDir(), directory: t.TempDir(), ledger: t.TempDir()}}
	c.options.prices, c.options.message = filepath.Join(c.options.keys, "prices.yaml"), filepath.Join(c.options.directory, "message")
	var err error
	c.options.limit, err = strconv.ParseFloat(limit, 64)
	require.NoError(t, err)
	for path, content := range map[string]string{filepath.Join(c.options.keys, KeyOf(provider)): testKey + "\n", c.options.prices: testPrices} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	c.start()
	t.Cleanup(func() { c.server.CloseClientConnections(); c.server.Close() })
	return c
}

func (c *container) start() {
	c.t.Helper()
	p, err := c.options.newProxy(slog.New(slog.DiscardHandler))
	require.NoError(c.t, err)
	p.limits.silence, p.limits.eventBytes = c.silence, 100<<10
	require.NoError(c.t, writeFile(filepath.Join(c.options.directory, TokenFile), []byte(p.token), 0o444))
	c.proxy, c.server = p, httptest.NewServer(p)
}

// kill stops the process in whatever it does: it writes nothing more.
func (c *container) kill() {
	l := c.proxy.ledger
	l.mutex.Lock()
	l.store = func(state) error { return errors.New("killed") }
	l.mutex.Unlock()
	c.server.CloseClientConnections()
	c.start()
}

// report returns the report that the operator reads.
func (c *container) report() *Report {
	c.t.Helper()
	raw, err := os.ReadFile(c.options.message)
	require.NoError(c.t, err)
	report, err := ParseReport(string(raw))
	require.True(c.t, err == nil, "%q: %v", raw, err)
	return report
}

func (c *container) spent() float64 {
	c.t.Helper()
	spent, err := strconv.ParseFloat(c.report().SpentUSD, 64)
	require.NoError(c.t, err)
	return spent
}

// send sends a request as an agent, and returns the status and the body; 0 if the response did not arrive as a whole.
func (c *container) send(a api, isStream, leaves bool) (int, string) {
	path, body := a.path, fmt.Sprintf(a.body, "")
	if isStream {
		path, body = strings.Replace(path, ":generateContent", ":streamGenerateContent", 1)+"?alt=sse", fmt.Sprintf(a.body, `,"stream":true`)
		if a.provider == "Google" {
			body = fmt.Sprintf(a.body, "")
		}
	}
	return c.post(path, body, leaves)
}

func (c *container) post(path, body string, leaves bool) (int, string) {
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.server.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Api-Key", c.proxy.token)
	request.Header.Set("Authorization", "Bearer "+c.proxy.token)
	request.Header.Set("X-Goog-Api-Key", c.proxy.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	if leaves { // after the first bytes
		_, _ = response.Body.Read(make([]byte, 1))
		return 0, ""
	}
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, string(raw)
	}
	return response.StatusCode, string(raw)
}

// However the provider and the agent behave, at most one response exceeds the budget, and the report is not less than what the provider
// charges for. A restart forgets nothing.
func TestAtMostOneResponseExceedsTheBudget(t *testing.T) {
	t.Parallel()
	for name, a := range apis {
		for _, behavior := range slices.Sorted(maps.Keys(behaviors)) {
			for _, isStream := range []bool{false, true} {
				for _, how := range []string{"one after the other", "parallel", "parallel with kills", "the agent leaves"} {
					t.Run(fmt.Sprintf("%s/%s/stream=%v/%s", name, behavior, isStream, how), func(t *testing.T) {
						t.Parallel()
						testBudget(t, a, behavior, isStream, how)
					})
				}
			}
		}
	}
}

func testBudget(t *testing.T, a api, behavior string, isStream bool, how string) {
	t.Helper()
	const limit = 3
	m := newModel(t, a, behavior)
	c := newContainer(t, a.provider, m.URL, strconv.Itoa(limit))
	if behavior != "silent" {
		c.silence = time.Minute
		c.proxy.limits.silence = c.silence
	}
	parallel := 1
	if strings.HasPrefix(how, "parallel") {
		parallel = 6
	}
	refused := false
	for range 6 {
		var all sync.WaitGroup
		var seen atomic.Bool
		before := *c // its restart changes it
		for range parallel {
			all.Go(func() {
				status, body := before.send(a, isStream, how == "the agent leaves")
				if strings.Contains(body, "maxCostUSD") && status == http.StatusBadRequest {
					seen.Store(true)
				}
				if strings.Contains(body, testKey) && behavior == "refuses the key" {
					t.Errorf("the agent sees the key: %s", body)
				}
			})
		}
		if how == "parallel with kills" { // in the middle of the first requests
			if behaviors[behavior] > 0 {
				poll.Until(t, "a request to arrive", func() bool { return m.charged.Load() > 0 })
			}
			c.kill()
		}
		all.Wait()
		refused = refused || seen.Load()
	}
	charged, spent := float64(m.charged.Load()), c.spent()
	require.True(t, charged <= limit+1, "the provider charges for %v dollars of %d", charged, limit)
	require.True(t, spent >= charged, "the report has %v dollars, the provider charges for %v", spent, charged)
	require.True(t, behaviors[behavior] != 0 || spent == 0 || how == "parallel with kills", "refused requests cost %v dollars", spent)
	require.True(t, behaviors[behavior] == 0 || parallel > 1 || how == "the agent leaves" || refused, "no request was refused after %v dollars", spent)
	if behavior == "answers" && how == "one after the other" {
		require.True(t, charged >= limit && spent <= charged+0.01, "the report has %v dollars, the provider charges for %v", spent, charged)
	}
	require.True(t, m.wrongKey.Load() == 0, "a request had another key")
	before := m.charged.Load()
	status, body := c.send(a, isStream, false)
	require.True(t, spent < limit || status == http.StatusBadRequest && strings.Contains(body, "maxCostUSD") && m.charged.Load() == before,
		"at the limit, a request is answered with %d %s", status, body)
}

func TestTheCostIsIncompleteIfTheContainerIsKilledDuringARequestWithoutAPrice(t *testing.T) {
	t.Parallel()
	m := newModel(t, apis["Messages"], "silent")
	c := newContainer(t, "Anthropic", m.URL, "Inf")
	c.proxy.limits.silence = time.Minute
	before := *c
	go before.post("/v1/messages", `{"model":"other"}`, false)
	poll.Until(t, "the request to arrive", func() bool { return m.charged.Load() == 1 })
	c.kill()
	require.True(t, c.report().Incomplete, "the report is %+v", c.report())
}

func TestWhatTheProxyCannotPriceIsRefusedWithABudget(t *testing.T) {
	t.Parallel()
	for path, bodies := range map[string][]string{
		"Anthropic /v1/messages": {
			`{"model":"other","max_tokens":1}`, `{"model":"m","mcp_servers":[{}]}`, `{"model":"m","container":"x"}`, `{"model":"m","speed":"fast"}`,
			`{"model":"m","inference_geo":"us"}`, `{"model":"m","tools":[{"type":"code_execution_20250825"}]}`, `{"model":"m","model":"n"}`, `{"model":"m","messages":[{"a":1,"a":2}]}`,
			`{}`, `[]`, ``, `{"model":"m"}{}`, `{"model":"m","max_tokens":"x"}`, `{"Model":"m"}`, `{"model":"m","messages":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`,
		},
		"OpenAI /v1/responses": {
			`{"model":"other"}`, `{"model":"m","background":true}`, `{"model":"m","service_tier":"priority"}`, `{"model":"m","prompt":{"id":"p"}}`,
			`{"model":"m","tools":[{"type":"mcp"}]}`, `{"model":"m","tools":[{"type":"image_generation"}]}`, `{"model":"m","tools":[{}]}`,
		},
		"OpenAI /v1/chat/completions": {`{"model":"m","web_search_options":{}}`, `{"model":"m","audio":{}}`, `{"model":"m","stream":true,"stream_options":[]}`},
		"Google /v1beta/models/m:generateContent": {
			`{"tools":[{"googleMaps":{}}]}`, `{"generationConfig":{"responseModalities":["IMAGE"]}}`, `{"generationConfig":{},"generation_config":{}}`, `{"newField":1}`,
			`{"contents":[{"parts":[{"inline_data":{"mime_type":"audio/mp3"}}]}]}`, `{"contents":[{"parts":[{"fileData":{}}]}]}`,
		},
		"Google /v1beta/models/other:generateContent": {`{}`},
	} {
		provider, path, _ := strings.Cut(path, " ")
		m := newModel(t, apis["Messages"], "answers")
		c := newContainer(t, provider, m.URL, "3")
		for _, body := range bodies {
			status, answer := c.post(path, body, false)
			require.True(t, status == http.StatusBadRequest && strings.Contains(answer, `"error"`), "%s with %.80s is answered with %d %s", path, body, status, answer)
		}
		require.True(t, m.charged.Load() == 0 && c.spent() == 0, "%s: a request was sent", path)
	}
}

func TestOnlyKnownPathsAreForwardedForTheTokenOfThePod(t *testing.T) {
	t.Parallel()
	m := newModel(t, apis["Messages"], "answers")
	for provider, paths := range map[string][]string{
		"Anthropic": {"/v1/messages/batches", "/v1/files", "/", "/v1/complete", "/v1/messages/", "//v1/messages", "/v1/messages/../files", "/v1/organizations/x"},
		"OpenAI":    {"/v1/batches", "/v1/images/generations", "/v1/embeddings", "/v1/responses/x", "/v1/realtime", "/responses"},
		"Google":    {"/v1beta/cachedContents", "/v1beta/models/m:embedContent", "/v1beta/models/m:batchGenerateContent", "/v1beta/files", "/v1beta/models/m/x:generateContent", "/upload/v1beta/files"},
	} {
		c := newContainer(t, provider, m.URL, "3")
		for _, path := range paths {
			status, _ := c.post(path, "{}", false)
			require.True(t, status == http.StatusNotFound, "%s %s is answered with %d", provider, path, status)
		}
		c.proxy.token = "another"
		for _, token := range []string{"", "another1"} {
			request := httptest.NewRequest(http.MethodPost, "/v1/messages", strings.NewReader("{}"))
			request.Header.Set("X-Api-Key", token)
			recorder := httptest.NewRecorder()
			c.proxy.ServeHTTP(recorder, request)
			require.True(t, recorder.Code == http.StatusUnauthorized, "the token %q is answered with %d", token, recorder.Code)
		}
	}
	require.True(t, m.charged.Load() == 0, "a request was forwarded")
}

func TestUnlimitedSessionsUseAnyModelAndReportAnIncompleteCost(t *testing.T) {
	t.Parallel()
	m := newModel(t, apis["Messages"], "answers")
	c := newContainer(t, "Anthropic", m.URL, "Inf")
	for _, model := range []string{"m", "other"} {
		status, body := c.post("/v1/messages", `{"model":"`+model+`"}`, false)
		require.True(t, status == http.StatusOK, "%d %s", status, body)
		require.Equal(t, model == "other", c.report().Incomplete)
	}
	spent := c.spent()
	require.True(t, spent >= 1 && spent <= 1.01, "%v dollars", spent)
}

func TestRequestsThatAreTooLargeOrTooManyAreRefused(t *testing.T) {
	t.Parallel()
	m := newModel(t, apis["Messages"], "answers")
	c := newContainer(t, "Anthropic", m.URL, "3")
	c.proxy.limits.bodyBytes = 1000
	status, _ := c.post("/v1/messages", `{"model":"m","messages":"`+strings.Repeat("x", 1000)+`"}`, false)
	require.True(t, status == http.StatusRequestEntityTooLarge, "a large request is answered with %d", status)
	c.proxy.limits.requests = 0
	status, _ = c.post("/v1/messages", `{"model":"m"}`, false)
	require.True(t, status == http.StatusTooManyRequests, "a further request is answered with %d", status)
	require.True(t, m.charged.Load() == 0, "a request was forwarded")
}

func TestPrices(t *testing.T) {
	t.Parallel()
	prices, err := BuiltInPrices()
	require.NoError(t, err)
	check := func(model string, usage Usage, want int64) {
		price, found := prices.find(model)
		got := price.cost(usage)
		require.True(t, found && got == want, "%s costs %d, want %d", model, got, want)
	}
	check("claude-sonnet-4-5-20250929", Usage{Input: 1000, CacheRead: 2000, CacheWrite: 400, CacheWriteHour: 100, Output: 100}, 3000+600+1500+600+1500)
	check("claude-sonnet-4-5", Usage{Input: 300_000, Output: 100}, 1_800_000+2250)
	check("gpt-5-codex", Usage{Input: 1000, CacheRead: 1000, Output: 10, Searches: 2}, 1250+125+100+20_000)
	check("gpt-5.5", Usage{Input: 300_000, CacheRead: 1000, Output: 100}, 3_000_000+1000+4500)
	check("gemini-2.5-pro", Usage{Input: 1, Output: 0}, 2) // rounded up
	for _, other := range []string{"gpt-5-pro", "claude-sonnet-4-5-fast", "", "gpt-5-codex-mini"} {
		_, found := prices.find(other)
		require.True(t, !found, "%q has the price of another model", other)
	}
	for _, invalid := range []string{`{models: {m: {}}}`, `{models: {m: {input: -1, output: 1, maxInputTokens: 1, maxOutputTokens: 1}}}`, `{models: {m: {input: 1, output: 1}}}`, `{modells: {}}`, `{models: {m: {input: 1, output: 1, maxInputTokens: 1, maxOutputTokens: 1, longPrompt: {tokens: 1}}}}`, `[`} {
		_, err = ParsePrices([]byte(invalid))
		require.True(t, err != nil, "%s is accepted", invalid)
	}
	own, err := ParsePrices([]byte(`{models: {m: {input: 1, output: 1, maxInputTokens: 1, maxOutputTokens: 1}}}`))
	_, found := own.find("gpt-5")
	require.True(t, err == nil && found && len(own) == len(prices)+1, "%d prices, error %v", len(own), err)
}

func TestUsageOfResponses(t *testing.T) {
	t.Parallel()
	check := func(provider, events string, want Usage) {
		m := providers[provider].meter()
		for line := range strings.Lines(events) {
			err := m.event(bytes.TrimSpace([]byte(line)))
			require.True(t, err == nil, "%s: %v", line, err)
		}
		got, _, complete := m.usage()
		require.True(t, got == want && complete, "%s: %+v, complete %v, want %+v", provider, got, complete, want)
	}
	check("Anthropic", `{"type":"message_start","message":{"usage":{"input_tokens":3,"cache_creation_input_tokens":30,"cache_read_input_tokens":7,"cache_creation":{"ephemeral_5m_input_tokens":20,"ephemeral_1h_input_tokens":10},"output_tokens":2}}}
{"type":"ping"}
{"type":"message_delta","usage":{"output_tokens":50,"server_tool_use":{"web_search_requests":2}}}
{"type":"message_stop"}`, Usage{Input: 3, CacheRead: 7, CacheWrite: 20, CacheWriteHour: 10, Output: 50, Searches: 2})
	check("Anthropic", `{"type":"message","usage":{"input_tokens":1,"output_tokens":1,"iterations":[{"input_tokens":100,"output_tokens":10},{"input_tokens":1,"output_tokens":1}]}}`, Usage{Input: 101, Output: 11})
	check("OpenAI", `{"type":"response.created","response":{"status":"in_progress"}}
{"type":"response.completed","response":{"status":"completed","output":[{"type":"web_search_call"},{"type":"message"}],"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":40},"output_tokens":5}}}`, Usage{Input: 60, CacheRead: 40, Output: 5, Searches: 1})
	check("OpenAI", `{"object":"chat.completion","choices":[],"usage":{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":40},"completion_tokens":5}}`, Usage{Input: 60, CacheRead: 40, Output: 5})
	check("Google", `[{"candidates":[{}],"usageMetadata":{"promptTokenCount":100}},{"candidates":[{"finishReason":"STOP","groundingMetadata":{"webSearchQueries":["a","b"]}}],"usageMetadata":{"promptTokenCount":100,"cachedContentTokenCount":40,"toolUsePromptTokenCount":5,"candidatesTokenCount":6,"thoughtsTokenCount":7}}]`, Usage{Input: 65, CacheRead: 40, Output: 13, Searches: 2})
}

// The upper bound of a request is not less than what its response can cost.
func TestBoundsOfRequests(t *testing.T) {
	t.Parallel()
	prices := Prices{"m": {Input: 1, CacheWriteHour: 2, Output: 10, Search: 0.01, MaxInputTokens: 100_000, MaxOutputTokens: 5000}}
	const overhead = promptOverhead
	check := func(provider, path, body string, prompt, output, rounds, searches int64) {
		in := &incoming{method: http.MethodPost, path: path, body: []byte(body), limited: true, prices: prices}
		r, err := providers[provider].parse(in)
		require.True(t, err == nil, "%s: %v", body, err)
		want := (bound{micros: (prompt*2+output*10)*rounds + searches*10_000, alone: rounds > 1})
		require.True(t, r.bound == want, "%s costs at most %+v, want %+v", body, r.bound, want)
	}
	check("Anthropic", "/v1/messages", `{"model":"m","max_tokens":10}`, 29+overhead, 10, 1, 0)
	check("Anthropic", "/v1/messages", `{"model":"m"}`, 13+overhead, 5000, 1, 0)
	check("Anthropic", "/v1/messages", `{"model":"m","max_tokens":900000}`, 33+overhead, 900_000, 1, 0) // more than the table says
	check("Anthropic", "/v1/messages", `{"model":"m","max_tokens":10,"messages":[{"content":[{"type":"image","source":{"type":"url"}}]}]}`, 100_000, 10, 1, 0)
	check("Anthropic", "/v1/messages", `{"model":"m","max_tokens":10,"tools":[{"type":"web_search_20250305","max_uses":20}]}`, 100_000, 10, 21, 20)
	check("OpenAI", "/v1/chat/completions", `{"model":"m","max_completion_tokens":10,"n":3}`, 46+overhead, 30, 1, 0)
	check("Anthropic", "/v1/messages", `{"model":"m","max_tokens":9000000000000000000}`, 46+overhead, 1_000_000, 1, 0)
	check("OpenAI", "/v1/responses", `{"model":"m","max_output_tokens":10,"input":[{"type":"item_reference","id":"x"}]}`, 100_000, 10, 1, 0)
	check("OpenAI", "/v1/responses", `{"model":"m","max_output_tokens":10,"previous_response_id":"x"}`, 100_000, 10, 1, 0)
	check("OpenAI", "/v1/responses", `{"model":"m","max_output_tokens":10,"tools":[{"type":"web_search"}]}`, 100_000, 10, 11, 10)
	check("OpenAI", "/v1/responses", `{"model":"m","max_output_tokens":10,"tools":[{"type":"tool_search"}]}`, 100_000, 10, 11, 0)
	check("OpenAI", "/v1/responses", `{"model":"m","max_output_tokens":10,"tools":[{"type":"tool_search","execution":"client"}]}`, 90+overhead, 10, 1, 0)
	check("Google", "/v1beta/models/m:generateContent", `{"generationConfig":{"maxOutputTokens":10,"candidateCount":2}}`, 62+overhead, 20, 1, 0)
}
