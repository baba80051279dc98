// A Millrace worker with Go's standard library alone: heartbeats, retries, shutdown. Run it with: go run worker.go
package main

import ("bytes"; "cmp"; "context"; "encoding/json"; "errors"; "fmt"; "net/http"; "net/url"; "os"; "os/signal"; "syscall"; "time")

type object = map[string]any

type job struct {
	Id, Name       string
	Fence, LeaseMs int64
	Data           struct{ Seconds float64 }
}

var base = cmp.Or(os.Getenv("MILLRACE_URL"), "http://127.0.0.1:7070") + "/v1"
var client = &http.Client{Timeout: 40 * time.Second}

// call sends a body, and reads the answer; the status is 0 where the server is away.
func call(ctx context.Context, path string, body object, answer any) int {
	text, _ := json.Marshal(body)
	request, _ := http.NewRequestWithContext(ctx, "POST", base+path, bytes.NewReader(text))
	request.Header.Set("content-type", "application/json")
	request.Header.Set("authorization", "Bearer "+os.Getenv("MILLRACE_TOKEN"))
	response, err := client.Do(request)
	if err != nil { return 0 }
	defer response.Body.Close()
	if answer != nil && json.NewDecoder(response.Body).Decode(answer) != nil { return 0 }
	return response.StatusCode
}

// wait is the work. Its context ends where the job is cancelled, or becomes another worker's.
func wait(ctx context.Context, each job) (object, error) {
	if each.Data.Seconds < 0 { return nil, errors.New("nobody can wait that long") }
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Duration(each.Data.Seconds * float64(time.Second))):
		return object{"waited": each.Data.Seconds, "by": "go"}, nil
	}
}

func run(each job) {
	path := "/jobs/" + url.PathEscape(each.Id) + "/"
	ctx, lost := context.WithCancel(context.Background())
	defer lost()
	go func() { // a beat every third of the lease, until the handler has ended or the job is lost
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(each.LeaseMs) * time.Millisecond / 3):
				status := call(ctx, path+"heartbeat", object{"fence": each.Fence}, nil)
				if status == 404 || status == 409 || status == 410 { lost() }
			}
		}
	}()
	result, err := wait(ctx, each)
	if ctx.Err() != nil { return }
	settle, body := "complete", object{"fence": each.Fence, "result": result}
	if err != nil { settle, body = "fail", object{"fence": each.Fence, "error": object{"message": err.Error()}} }
	for pause := 0; pause < 5; pause++ { // with the same fence, saying it again is safe
		time.Sleep(time.Duration(pause) * time.Second)
		if status := call(context.Background(), path+settle, body, nil); status > 0 && status < 500 { return }
	}
}

func main() {
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	host, _ := os.Hostname()
	claim := object{"worker": fmt.Sprintf("go-%s-%d", host, os.Getpid()), "names": []string{"wait"}, "wait": "20s",
		"queues": []string{cmp.Or(os.Getenv("MILLRACE_QUEUE"), "work")}, "lease": cmp.Or(os.Getenv("MILLRACE_LEASE"), "30s")}
	for stopping.Err() == nil {
		var answer struct { State string; Jobs []job }
		if call(stopping, "/claims", claim, &answer) != 200 { time.Sleep(time.Second) }
		if answer.State == "stopping" { return } // an operator has asked for it
		for _, each := range answer.Jobs { run(each) }
	}
}
