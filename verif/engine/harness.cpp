// Runs an engine's Verilog against a burst-level memory model: whole heads at Verilator's speed.
//
// usage: engine CONFIG
//
// CONFIG is text, one "name value" a line; see verif/apt/engine_run.py, which writes it. Memory
// comes from a raw file and goes back to one. The port's order is kept: reads answer in order,
// each burst after a latency of its own; a beat moves only in cycles that the throttle lets by.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "Vsd_mpu.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

namespace {

constexpr unsigned kAborted = 2;

struct Burst {
    uint64_t address;
    uint32_t beats;
    uint64_t ready_at;
};

[[noreturn]] void fail(const std::string& message) {
    std::fprintf(stderr, "engine: %s\n", message.c_str());
    std::exit(1);
}

std::map<std::string, std::string> read_config(const char* path) {
    std::ifstream file(path);
    if (!file) fail(std::string("cannot read ") + path);
    std::map<std::string, std::string> config;
    std::string line;
    while (std::getline(file, line)) {
        const auto space = line.find(' ');
        if (space == std::string::npos) fail("bad line in configuration: " + line);
        config[line.substr(0, space)] = line.substr(space + 1);
    }
    return config;
}

std::vector<uint8_t> read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) fail("cannot read " + path);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) fail("usage: engine CONFIG");
    auto config = read_config(argv[1]);
    auto number = [&](const char* name) -> uint64_t {
        const auto found = config.find(name);
        if (found == config.end()) fail(std::string("configuration lacks ") + name);
        return std::stoull(found->second);
    };
    const uint32_t beat_bytes = number("beat_bytes");
    const uint64_t latency = number("latency"), jitter = number("jitter");
    const uint64_t idle_percent = number("idle_percent"), most_cycles = number("most_cycles");
    const uint64_t abort_at = number("abort_at");
    const bool timeline = number("timeline");
    auto memory = read_file(config["memory"]);
    const auto job_bytes = read_file(config["jobs"]);
    std::vector<uint32_t> words(job_bytes.size() / 4);
    std::memcpy(words.data(), job_bytes.data(), words.size() * 4);
    const size_t job_words = number("job_words"), jobs = words.size() / job_words;
    // A job is given when so many have ended, as a host does that needs their results.
    const auto after_bytes = read_file(config["after"]);
    std::vector<uint32_t> after(after_bytes.size() / 4);
    std::memcpy(after.data(), after_bytes.data(), after.size() * 4);
    if (after.size() != jobs) fail("as many numbers in 'after' as jobs");
    std::mt19937_64 random(number("seed"));

    const auto context = std::make_unique<VerilatedContext>();
    context->randReset(2);
    context->randSeed(static_cast<int>(number("seed") % 0x7fffffff + 1));
    const auto top = std::make_unique<Vsd_mpu>(context.get());
#if VM_TRACE
    VerilatedVcdC trace;
    context->traceEverOn(true);
    top->trace(&trace, 99);
    trace.open(config["waves"].c_str());
#endif
    uint64_t time = 0;
    auto edge = [&] {
        top->clk = 1;
        top->eval();
#if VM_TRACE
        trace.dump(2 * time + 1);
#endif
        top->clk = 0;
        top->eval();
#if VM_TRACE
        trace.dump(2 * time + 2);
#endif
        ++time;
    };

    top->clk = 0;
    top->rst = 1;
    top->job___05Fvalid = top->request___05Fready = top->write___05Fready = 0;
    top->read___05Fvalid = top->done___05Fready = top->abort_jobs = 0;
    top->eval();
    for (int cycle = 0; cycle < 4; ++cycle) edge();
    top->rst = 0;

    std::deque<Burst> reads, writes;
    size_t word = 0, finished = 0;
    uint64_t read_beats = 0, written_beats = 0, idle_beats = 0, cycle = 0;
    int stages = -1;
    bool aborted = false, again = false;
    std::FILE* results = std::fopen(config["results"].c_str(), "w");
    if (!results) fail("cannot write " + config["results"]);
    const auto lucky = [&] { return idle_percent == 0 || random() % 100 >= idle_percent; };

    for (; finished < jobs && cycle < most_cycles; ++cycle) {
        // Outputs of the last edge have settled: answer them, then make the next edge.
        const bool take_request = reads.size() + writes.size() < 8;
        const bool offer_read = top->read___05Fvalid ||
            (!reads.empty() && reads.front().ready_at <= cycle && lucky());
        top->job___05Fvalid = word < words.size() &&
            (word % job_words != 0 || finished >= after[word / job_words]);
        if (top->job___05Fvalid) top->job___05Fpayload = words[word];
        top->request___05Fready = take_request;
        top->write___05Fready = !writes.empty() && lucky();
        if (offer_read && !top->read___05Fvalid)
            std::memcpy(&top->read___05Fpayload, &memory[reads.front().address * beat_bytes],
                        beat_bytes);
        top->read___05Fvalid = offer_read;
        top->done___05Fready = 1;
        top->abort_jobs = abort_at != 0 && cycle == abort_at && !aborted;
        if (top->abort_jobs) aborted = true;
        top->eval();

        const bool job_taken = top->job___05Fvalid && top->job___05Fready;
        const bool requested = top->request___05Fvalid && top->request___05Fready;
        const bool written = top->write___05Fvalid && top->write___05Fready;
        const bool read = top->read___05Fvalid && top->read___05Fready;
        const bool done = top->done___05Fvalid;
        if (timeline && top->stages != stages) {
            stages = top->stages;
            std::fprintf(results, "stages %llu %d\n", (unsigned long long)cycle, stages);
        }
        if (requested) {
            const uint64_t request = top->request___05Fpayload;
            Burst burst{(request >> 1) & 0xffffffffu, uint32_t(request >> 33),
                        cycle + latency + (jitter ? random() % jitter : 0)};
            if (burst.beats == 0) fail("a burst of no beats");
            if ((burst.address + burst.beats) * beat_bytes > memory.size())
                fail("a burst beyond the memory");
            (request & 1 ? writes : reads).push_back(burst);
        }
        if (written) {
            auto& burst = writes.front();
            std::memcpy(&memory[burst.address * beat_bytes], &top->write___05Fpayload, beat_bytes);
            ++burst.address;
            ++written_beats;
            if (--burst.beats == 0) writes.pop_front();
        }
        if (!read && !written && !reads.empty()) ++idle_beats;
        if (done) {
            const unsigned status = top->done___05Fpayload;
            std::fprintf(results, "done %llu %u", (unsigned long long)cycle, status);
            if (status == kAborted) {
                again = true;
            } else {
                ++finished;
            }
            for (size_t k = 0; k < number("counters"); ++k) {
                uint32_t value;
                std::memcpy(&value, reinterpret_cast<uint8_t*>(&top->counters) + 4 * k, 4);
                std::fprintf(results, " %u", value);
            }
            std::fprintf(results, "\n");
        }
        edge();
        if (job_taken) ++word;
        if (again) word = finished * job_words;  // those that did not end, from the first on
        again = false;
        if (read) {
            ++read_beats;
            auto& burst = reads.front();
            ++burst.address;
            if (--burst.beats == 0) reads.pop_front();
            top->read___05Fvalid = 0;
        }
    }
    std::fprintf(results, "end %llu %llu %llu %llu\n", (unsigned long long)cycle,
                 (unsigned long long)read_beats, (unsigned long long)written_beats,
                 (unsigned long long)idle_beats);
    std::fclose(results);
#if VM_TRACE
    trace.close();
#endif
    top->final();
    if (finished < jobs) fail("the engine did not finish within " + config["most_cycles"] + " cycles");
    std::ofstream out(config["out"], std::ios::binary);
    out.write(reinterpret_cast<const char*>(memory.data()), memory.size());
    if (!out) fail("cannot write " + config["out"]);
    return 0;
}
